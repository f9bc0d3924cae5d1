"""Real peers against Holdline in five processes: SIPp scenarios, many SIPp calls,
and pairs of real phones whose media gateway is killed.

    peers.py --bin-dir DIR --folder DIR [--calls N] [--rate N] [--only WHAT] [--slack N]

`--slack N` makes limits of time N times as wide, for a machine with other work.
"""

import argparse
import os
import subprocess
import sys
import time

from cluster import GATE, GATE_TLS, Cluster

HERE = os.path.dirname(os.path.abspath(__file__))
CALLER, CALLEE = "127.77.6.8", "127.77.6.9"
LOAD = os.path.join(HERE, "..", "benches", "peers")
SCENARIOS = os.path.join(HERE, "sipp")


def sipp(folder, name, role, address, port, *arguments):
    """Starts SIPp; its files say what went wrong, if something did."""
    log = os.path.join(folder, f"{name}_{role}")
    command = ["sipp", "-nostdin", "-i", address, "-p", "5060", "-mi", address, "-mp", str(port),
               "-buff_size", "4000000", "-trace_err", "-error_file", f"{log}.errors", *arguments]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=open(f"{log}.log", "w"),
                            stderr=subprocess.STDOUT)


def end(process, seconds):
    """Waits; returns the exit code, or what happened instead."""
    try:
        return process.wait(max(seconds, 0.1))
    except subprocess.TimeoutExpired:
        # Asked first, it takes away what it has made.
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        return "did not end"


def pair(folder, name, caller, callee, calls, rate, hold=1000, over=("u1", "u1"), number="1001"):
    """Lets a SIPp caller call a SIPp callee through the gate; none may fail. `over` is how each
    speaks: u1 over UDP, t1 over one TCP connection, tn over one for each call."""
    start = time.monotonic()
    limit = 2 * calls / rate + hold / 1000 + 60
    answering = sipp(folder, name, "callee", CALLEE, 7000, "-sf", callee, "-m", str(calls),
                     "-t", over[1])
    time.sleep(0.5)
    calling = sipp(folder, name, "caller", CALLER, 6000, "-sf", caller, "-m", str(calls),
                   "-r", str(rate), "-l", "10000", "-d", str(hold), "-s", number,
                   "-t", over[0], "-max_socket", "1000", GATE)
    codes = {"caller": end(calling, limit), "callee": end(answering, 30)}
    for role, code in codes.items():
        if code != 0:
            fault = f"{name}: {role} {code}"
            for kind in ("errors", "log"):
                fault += tail(os.path.join(folder, f"{name}_{role}.{kind}"))
            return [fault]
    took = time.monotonic() - start
    print(f"ok: {name}: {calls} calls at {rate}/s, none failed ({took:.0f} s)", flush=True)
    return []


def scenario(folder, name, calls, rate):
    files = [os.path.join(SCENARIOS, f"{name}_{role}.xml") for role in ("caller", "callee")]
    return pair(folder, name, *files, calls, rate)


def load(folder, name, calls, rate, **how):
    files = [os.path.join(LOAD, f"{role}.xml") for role in ("caller", "callee")]
    return pair(folder, name, *files, calls, rate, **how)


def tcp(folder):
    """SIPp over TCP on both sides, on one, and with a connection for each call. Numbers that begin
    with 2 are called over TCP."""
    faults = []
    for name, over, number in [("tcp", ("t1", "t1"), "2001"), ("tcp_udp", ("t1", "u1"), "1001"),
                               ("udp_tcp", ("u1", "t1"), "2001"), ("tcp_each", ("tn", "t1"), "2001")]:
        faults += load(folder, name, 200, 50, over=over, number=number)
    return faults


def renegotiation(folder):
    """A client that wants new keys on a connection with TLS 1.2 is told that there are none."""
    log = os.path.join(folder, "renegotiation.log")
    with open(log, "w") as file:
        command = ["openssl", "s_client", "-connect", GATE_TLS, "-tls1_2"]
        client = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=file,
                                  stderr=subprocess.STDOUT, text=True)
        time.sleep(1)
        client.stdin.write("R\n")
        client.stdin.flush()
        code = end(client, 30)
    with open(log, errors="replace") as file:
        text = file.read().lower()
    if "renegotiating" not in text or "no renegotiation" not in text:
        return [f"renegotiation: {code}{tail(log)}"]
    print("ok: keys are not renegotiated", flush=True)
    return []


def tail(path):
    """The end of a file, if there is one."""
    if not os.path.exists(path):
        return ""
    with open(path, errors="replace") as file:
        return f"\n--- the end of {path}\n{''.join(file.readlines()[-20:])[-2000:]}"


def phones(cluster, folder, alice, bob, slack, transport="udp"):
    victim = cluster.nodes["mediagate"].process
    script = os.path.join(HERE, "phones", "two_phones.py")
    gate = GATE_TLS if transport == "tls" else GATE
    command = [sys.executable, script, "--gate", gate, "--kill", str(victim.pid),
               "--alice", alice, "--bob", bob, "--transport", transport, "--slack", str(slack)]
    log = os.path.join(folder, f"{alice}_{bob}_{transport}.log")
    with open(log, "w") as file:
        running = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file,
                                   stderr=subprocess.STDOUT)
        code = end(running, 120 * slack)
    if victim.poll() is not None:
        cluster.restart("mediagate")
    if code != 0:
        return [f"phones, {alice} and {bob} over {transport}: {code}{tail(log)}"]
    print(f"ok: {alice} calls {bob} over {transport}, holds, resumes, and the media gateway is killed",
          flush=True)
    return []


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin-dir", required=True)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--rate", type=int, default=200)
    parser.add_argument("--only")
    parser.add_argument("--slack", type=int, default=1)
    arguments = parser.parse_args()
    folder = arguments.folder
    os.makedirs(folder, exist_ok=True)
    with Cluster(arguments.bin_dir, folder, f"{CALLEE}:5060", arguments.slack) as cluster:
        def call(alice, bob, transport="udp"):
            return phones(cluster, folder, alice, bob, arguments.slack, transport)

        steps = {
            "cancel": lambda: scenario(folder, "cancel", 20, 10),
            "busy": lambda: scenario(folder, "busy", 20, 10),
            "no_answer": lambda: scenario(folder, "no_answer", 10, 10),
            "hold": lambda: scenario(folder, "hold", 20, 10),
            "load": lambda: load(folder, "load", arguments.calls, arguments.rate),
            "tcp": lambda: tcp(folder),
            "pjsip": lambda: call("pjsip", "pjsip"),
            "pjsip_baresip": lambda: call("pjsip", "baresip"),
            "baresip_pjsip": lambda: call("baresip", "pjsip"),
            "tcp_pjsip_baresip": lambda: call("pjsip", "baresip", "tcp"),
            "tcp_baresip_pjsip": lambda: call("baresip", "pjsip", "tcp"),
            "tls_pjsip_pjsip": lambda: call("pjsip", "pjsip", "tls"),
            "tls_baresip_pjsip": lambda: call("baresip", "pjsip", "tls"),
            "tls_renegotiation": lambda: renegotiation(folder),
            "after": lambda: load(folder, "after", 20, 10),
        }
        faults = []
        for name, step in steps.items():
            if arguments.only in (None, name):
                faults += step()
        faults += cluster.faults()
    for fault in faults:
        print(f"FAILED: {fault}")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
