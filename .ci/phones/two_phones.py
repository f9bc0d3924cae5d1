"""Two real phones call through the system, hold, resume, and go on talking when
the media gateway that carries them is killed.

    two_phones.py --gate ADDRESS:PORT [--kill PID] [--alice KIND] [--bob KIND] [--direct]
                  [--transport NAME] [--slack N]

`--slack N` makes every limit of time N times as wide, for a machine with other work.
`--direct` lets the phones call each other with nothing between, to check this
script itself.
"""

import argparse
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time

TONES = {"alice": 440, "bob": 1000}
# baresip knows only addresses that an interface has.
WHERE = {
    ("alice", "pjsip"): "127.77.5.2:5060",
    ("bob", "pjsip"): "127.77.5.3:5060",
    ("alice", "baresip"): "127.0.0.1:25062",
    ("bob", "baresip"): "127.0.0.1:25063",
}
KINDS = ["pjsip", "baresip"]
HERE = os.path.dirname(os.path.abspath(__file__))


class Phone:
    def __init__(self, name, kind, transport, registrar, folder):
        self.name, self.where, self.tone = name, WHERE[name, kind], TONES[name]
        script = os.path.join(HERE, f"{kind}_phone.py")
        command = [sys.executable, script, self.name, self.where, str(self.tone), transport]
        self.process = subprocess.Popen(command + ([registrar] if registrar else []),
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env={**os.environ, "TMPDIR": folder})
        self.lines = queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            if line.startswith("{"):
                self.lines.put(json.loads(line))
        self.lines.put({"event": "gone"})

    def ask(self, *what):
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()

    def wait(self, limit=15, **wanted):
        """Waits for a line with these values; fails when it does not come."""
        until = time.monotonic() + limit * slack
        while True:
            try:
                line = self.lines.get(timeout=max(until - time.monotonic(), 0.01))
            except queue.Empty:
                fail(f"{self.name} waited in vain for {wanted}")
            print(f"  {self.name}: {line}", flush=True)
            if all(line.get(key) == value for key, value in wanted.items()):
                return line
            if line["event"] == "error":
                fail(f"{self.name}: {line['reason']}")
            if line["event"] == "gone":
                fail(f"{self.name} ended while it waited for {wanted}")

    def end(self):
        if self.process.poll() is None:
            try:
                self.ask("quit")
                self.process.wait(10)
            except (BrokenPipeError, subprocess.TimeoutExpired):
                self.kill()

    def kill(self):
        self.process.kill()
        self.process.wait()


phones = []
slack = 1


def fail(why):
    print(f"FAILED: {why}", flush=True)
    sys.exit(1)


def listen(seconds=1.5, meanwhile=None):
    """Lets both listen at once; returns what each heard of the other's tone."""
    tones = [phone.tone for phone in phones]
    for phone in phones:
        phone.ask("listen", seconds, tones)
    if meanwhile:
        time.sleep(0.5)
        meanwhile()
    return [phone.wait(limit=seconds + 20, event="heard") for phone in phones]


def both_hear(when, silence_max, **how):
    heard = listen(**how)
    for phone, other, line in zip(phones, reversed(phones), heard):
        level, own = line["levels"][str(other.tone)], line["levels"][str(phone.tone)]
        if level < 0.02 or level < 5 * own:
            fail(f"{when}: {phone.name} does not hear {other.name}: {line}")
        if silence_max * slack < line["silence_ms"]:
            fail(f"{when}: {phone.name} heard nothing for {line['silence_ms']} ms")
    silences = ", ".join(f"{phone.name} {line['silence_ms']} ms" for phone, line in zip(phones, heard))
    print(f"ok: {when}: both hear each other, longest silence: {silences}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gate", default="127.0.0.1:5060")
    parser.add_argument("--kill", type=int)
    parser.add_argument("--alice", choices=KINDS, default="pjsip")
    parser.add_argument("--bob", choices=KINDS, default="pjsip")
    parser.add_argument("--direct", action="store_true")
    parser.add_argument("--transport", choices=["udp", "tcp", "tls"], default="udp")
    parser.add_argument("--slack", type=int, default=1)
    arguments = parser.parse_args()
    global slack
    slack = arguments.slack
    if 1 < slack:
        print(f"limits of time are {slack} times the usual ones", flush=True)
    # What the phones and their libraries write; gone with them, also when we are told to end.
    signal.signal(signal.SIGTERM, lambda *_: fail("told to end"))
    with tempfile.TemporaryDirectory(prefix="phones-") as folder:
        try:
            call(arguments, folder)
        finally:
            for phone in phones:
                phone.kill()


def call(arguments, folder):
    registrar = None if arguments.direct else arguments.gate
    for name, kind in [("alice", arguments.alice), ("bob", arguments.bob)]:
        phones.append(Phone(name, kind, arguments.transport, registrar, folder))
    alice, bob = phones
    for phone in phones:
        phone.wait(**({"event": "registered", "code": 200} if registrar else {"event": "ready"}))
    print("ok: both phones are up", flush=True)

    callee = f"sip:bob@{bob.where if arguments.direct else arguments.gate}"
    alice.ask("call", f"{callee};transport={arguments.transport}")
    for phone in phones:
        phone.wait(event="call", state="CONFIRMED")
    time.sleep(0.5 * slack)
    both_hear("after the answer", silence_max=60)

    alice.ask("hold")
    alice.wait(event="media", active=False)
    time.sleep(0.5 * slack)
    for phone, line in zip(phones, listen()):
        if 0.005 < max(line["levels"].values()):
            fail(f"on hold, {phone.name} still hears something: {line}")
    print("ok: on hold, neither hears anything", flush=True)

    alice.ask("resume")
    alice.wait(event="media", active=True)
    time.sleep(0.5 * slack)
    both_hear("after resuming", silence_max=60)

    if arguments.kill:
        # The phones' jitter buffers stand between the wire and the ear.
        both_hear("while the media gateway is killed", silence_max=500, seconds=3,
                  meanwhile=lambda: os.kill(arguments.kill, signal.SIGKILL))
        both_hear("after the media gateway was killed", silence_max=60)

    alice.ask("hangup")
    for phone in phones:
        phone.wait(event="call", state="DISCONNECTED")
    print("ok: the call has ended at both ends", flush=True)
    for phone in phones:
        phone.end()


if __name__ == "__main__":
    main()
