"""What Spark starts in place of a Python that a warm process can be: PYTHON SOCKET [ARGUMENT...].

Asks the process behind the socket to go on as the one that Spark wants, and stays for as long as that one does: Spark
ends it by ending this. Where nobody answers, this becomes the Python that was asked for. It runs with no site and
imports next to nothing, since all it is for is to be quick.
"""

from __future__ import annotations

import marshal
import os
import socket
import sys

ANSWER_SECONDS_MAX = 2.0


def main(python: str, path: str, arguments: list[str]) -> int:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(ANSWER_SECONDS_MAX)
    try:
        connection.connect(path)
        wish = marshal.dumps((arguments, dict(os.environ), os.getcwd()))
        socket.send_fds(connection, [len(wish).to_bytes(4, "big")], [0, 1, 2])
        connection.sendall(wish)
        taken = connection.recv(1)
    except OSError:
        taken = b""
    if not taken:
        connection.close()
        os.execv(python, [python, *arguments])
    connection.settimeout(None)
    code = connection.recv(1)
    return code[0] if code else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
