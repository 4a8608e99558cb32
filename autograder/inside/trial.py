"""Whether a child can be secluded here, without waiting for torch: `python -I trial.py SITE JSON` ends with 0, or says why not."""

import json
import os
import sys

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__))]
sys.path.append(sys.argv[1])

import seclusion  # noqa: E402  (what lies beside this file)

seclusion.prepare()
seclusion.new_processes()
child = os.fork()
if child == 0:
    seclusion.seclude(json.loads(sys.argv[2]))
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
