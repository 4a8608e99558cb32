"""Whether a child can be secluded here, without waiting for torch: `python -I start.py trial SITE JSON` ends with 0, or says why not."""

import json
import os
import sys

from . import seclusion


def main(limits: str) -> None:
    seclusion.prepare()
    seclusion.new_processes()
    child = os.fork()
    if child == 0:
        seclusion.seclude(json.loads(limits))
        os._exit(0)
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
