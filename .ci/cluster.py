"""Holdline as separate processes on loopback addresses of its own."""

import os
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request

NET = "127.77.6"
GATE = f"{NET}.1:5060"
GATE_TLS = f"{NET}.1:5061"

RM = """
[node]
id = {id}
host = "server{id}"
address = "{address}"
roles = ["{role}"]
[links]
listen = "{address}:7101"
plaintext = true
[http]
listen = "{address}:9101"
[segment]
key = "68f4a1d2c07b935e"
[log]
level = "info"
"""

GATE_ONLY = """
[[listener]]
transport = "udp"
listen = "{address}:5060"

[[listener]]
transport = "tcp"
listen = "{address}:5060"

[[listener]]
transport = "tls"
listen = "{address}:5061"
certificate = "{tls}/sip-{address}.pem"
key = "{tls}/sip-{address}.key"
authority = "{tls}/ca.pem"
"""

B2B_ONLY = """
[b2b]
ring_timeout = 4
[[route]]
prefix = "1"
targets = ["{callee}"]

[[route]]
prefix = "2"
targets = ["{callee};transport=tcp"]
"""

PEER = """
[[peer]]
id = {id}
roles = ["{role}"]
link = "{address}:7101"
"""

MEDIAGATE = """
[node]
id = {id}
host = "server{id}"
address = "{address}"
[links]
listen = "{address}:7101"
plaintext = true
[http]
listen = "{address}:9101"
[log]
level = "info"
[beat]
listen = "{address}:7231"
[media]
listen = "{address}"
ports = "10000-32767"
standby = {standby}
"""

# Who is there, and whom each talks to.
NODES = {"gate": 1, "b2b": 2, "controller": 3, "mediagate": 4, "standby": 5}
TALKS_TO = {
    "gate": ["b2b"],
    "b2b": ["gate", "controller", "mediagate", "standby"],
    "controller": ["b2b", "mediagate", "standby"],
}


def address(name):
    return f"{NET}.{NODES[name]}"


def certificates(bin_dir, folder):
    """Makes the certificates of the gate anew; returns their folder."""
    tls = os.path.join(folder, "tls")
    shutil.rmtree(tls, ignore_errors=True)
    subprocess.run([os.path.join(bin_dir, "holdline-rm"), "certificates", tls,
                    "--sip", address("gate")], check=True, stdout=subprocess.DEVNULL)
    return tls


def config(name, callee, tls):
    values = {"id": NODES[name], "address": address(name), "callee": callee, "role": name,
              "tls": tls}
    if name in ("mediagate", "standby"):
        return MEDIAGATE.format(standby=str(name == "standby").lower(), **values)
    text = RM.format(**values)
    for other in TALKS_TO[name]:
        role = "mediagate" if other == "standby" else other
        text += PEER.format(id=NODES[other], role=role, address=address(other))
    return text + {"gate": GATE_ONLY, "b2b": B2B_ONLY}.get(name, "").format(**values)


class Node:
    def __init__(self, name, bin_dir, folder, callee, tls):
        self.name = name
        path = os.path.join(folder, f"{name}.toml")
        with open(path, "w") as file:
            file.write(config(name, callee, tls))
        program = "holdline-mediagate" if name in ("mediagate", "standby") else "holdline-rm"
        self.log = os.path.join(folder, f"{name}.log")
        self.process = subprocess.Popen([os.path.join(bin_dir, program), "--config", path],
                                        stdin=subprocess.DEVNULL, stdout=open(self.log, "a"),
                                        stderr=subprocess.STDOUT)

    def wait_until_healthy(self, seconds=60):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.name} ended: {self.tail()}")
            try:
                url = f"http://{address(self.name)}:9101/healthz"
                if urllib.request.urlopen(url, timeout=1).status == 200:
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.05)
        raise RuntimeError(f"{self.name} is not healthy after {seconds} s: {self.tail()}")

    def tail(self):
        with open(self.log) as file:
            return "\n" + "".join(file.readlines()[-15:])

    def stop(self):
        """Asks it to drain; returns what was wrong with how it ended, or None."""
        if self.process.poll() is not None:
            return f"{self.name} had ended by itself: {self.tail()}"
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return f"{self.name} did not drain within 60 s: {self.tail()}"
        return f"{self.name} ended with {code}: {self.tail()}" if code else None


class Cluster:
    """gate, b2b, controller, mediagate and a standby mediagate, a process each."""

    def __init__(self, bin_dir, folder, callee, slack=1):
        tls = certificates(bin_dir, os.path.abspath(folder))
        self.start = lambda name: Node(name, bin_dir, folder, callee, tls)
        self.nodes = {}
        # A gateway's port numbers rest for 2 s before their first use.
        self.rest = 2 + 0.5 * slack

    def __enter__(self):
        # Those who listen for links come first, the b2b that dials them last.
        for name in ("gate", "controller", "mediagate", "standby", "b2b"):
            self.nodes[name] = self.start(name)
        for node in self.nodes.values():
            node.wait_until_healthy()
        time.sleep(self.rest)
        return self

    def restart(self, name):
        """Starts a node that has died again."""
        self.nodes[name].process.wait(5)
        self.nodes[name] = self.start(name)
        self.nodes[name].wait_until_healthy()
        time.sleep(self.rest)

    def faults(self):
        """Stops all nodes; returns what was wrong with them."""
        faults = [node.stop() for node in reversed(self.nodes.values())]
        for node in self.nodes.values():
            with open(node.log) as file:
                faults += [f"{node.name}: {line.strip()}" for line in file if "panicked" in line]
        return [fault for fault in faults if fault]

    def __exit__(self, *_):
        for node in self.nodes.values():
            if node.process.poll() is None:
                node.process.kill()
                node.process.wait()
