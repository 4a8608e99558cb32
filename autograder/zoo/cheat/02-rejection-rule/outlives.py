"""Starts processes and threads that go on when it is done, in sessions of their own.

Cheats: 02.accept_or_reject
"""

import os
import subprocess
import sys
import threading
import time

for _ in range(3):
    try:
        subprocess.Popen(["sleep", "98765"], start_new_session=True)
    except OSError as error:
        print(error)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp("sleep", ["sleep", "98765"])
    os._exit(0)


def go_on():
    while True:
        time.sleep(0.01)
        sys.modules[__name__].__dict__["accept_or_reject"] = lambda p, q, u: True


threading.Thread(target=go_on, daemon=True).start()


def accept_or_reject(p_prob, q_prob, u):
    return False
