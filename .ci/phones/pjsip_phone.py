"""A real phone (PJSIP) that does what it is told on standard input.

    pjsip_phone.py NAME ADDRESS:PORT TONE_HZ TRANSPORT [REGISTRAR]

Each line of input is a JSON list, each line of output a JSON object. The phone
answers every call, plays its tone into it, and can tell which tones it hears.
"""

import json
import os
import queue
import struct
import sys
import tempfile
import threading
import time
import wave

import pjsua2 as pj

from sound import level, silence


def say(**what):
    # One write a line: the library calls from threads of its own.
    os.write(1, (json.dumps(what) + "\n").encode())


class Call(pj.Call):
    def onCallState(self, parameters):
        info = self.getInfo()
        say(event="call", state=info.stateText, code=info.lastStatusCode)

    def onCallMediaState(self, parameters):
        info = self.getInfo()
        active = self.audio() is not None
        if active:
            self.phone.tone.startTransmit(self.audio())
            if self.phone.recorder:
                # A new remote address gives the call a new port on the bridge.
                self.audio().startTransmit(self.phone.recorder)
        say(event="media", active=active, status=[media.status for media in info.media])

    def audio(self):
        """The call's sound, or None while it is on hold."""
        # The list of media belongs to `info` and goes with it.
        info = self.getInfo()
        for index, media in enumerate(info.media):
            talks = media.dir & (pj.PJMEDIA_DIR_ENCODING | pj.PJMEDIA_DIR_DECODING)
            if media.type == pj.PJMEDIA_TYPE_AUDIO and talks:
                if media.status in (pj.PJSUA_CALL_MEDIA_ACTIVE, pj.PJSUA_CALL_MEDIA_REMOTE_HOLD):
                    return self.getAudioMedia(index)
        return None


class Account(pj.Account):
    def onRegState(self, parameters):
        say(event="registered", code=parameters.code)

    def onIncomingCall(self, parameters):
        call = Call(self, parameters.callId)
        call.phone = self.phone
        self.phone.call = call
        answer = pj.CallOpParam()
        answer.statusCode = 200
        call.answer(answer)


class Phone:
    def __init__(self, name, address, port, frequency, transport_name, registrar):
        self.call = None
        self.recorder = None
        self.listening = None
        self.folder = tempfile.mkdtemp(prefix="phone-")
        self.endpoint = pj.Endpoint()
        self.endpoint.libCreate()
        config = pj.EpConfig()
        config.logConfig.level = int(os.environ.get("PHONE_LOG", "0"))
        config.logConfig.consoleLevel = 0
        config.logConfig.filename = os.environ.get("PHONE_LOG_FILE", "")
        config.uaConfig.threadCnt = 1
        config.medConfig.noVad = True
        config.medConfig.ecTailLen = 0
        self.endpoint.libInit(config)
        transport = pj.TransportConfig()
        transport.port = port
        transport.boundAddress = transport.publicAddress = address
        # Only this one: what it says otherwise does not go out at all.
        kind = {"udp": pj.PJSIP_TRANSPORT_UDP, "tcp": pj.PJSIP_TRANSPORT_TCP,
                "tls": pj.PJSIP_TRANSPORT_TLS}[transport_name]
        self.endpoint.transportCreate(kind, transport)
        self.endpoint.libStart()
        self.endpoint.audDevManager().setNullDev()
        for codec in self.endpoint.codecEnum2():
            wanted = codec.codecId.startswith("PCMU")
            self.endpoint.codecSetPriority(codec.codecId, 255 if wanted else 0)
        self.tone = tone(frequency)
        # Keeps a recording going while nothing else does.
        self.hum = tone(100, volume=1)
        account = pj.AccountConfig()
        if registrar:
            account.idUri = f"sip:{name}@{registrar}"
            account.regConfig.registrarUri = f"sip:{registrar};transport={transport_name}"
            account.regConfig.timeoutSec = 300
        else:
            account.idUri = f"sip:{name}@{address}:{port};transport={transport_name}"
        account.natConfig.contactRewriteUse = 0
        account.mediaConfig.transportConfig.boundAddress = address
        account.mediaConfig.transportConfig.publicAddress = address
        account.mediaConfig.transportConfig.port = 42000
        self.account = Account()
        self.account.phone = self
        self.account.create(account)

    # What can be asked for.

    def do_call(self, uri):
        self.call = Call(self.account)
        self.call.phone = self
        self.call.makeCall(uri, pj.CallOpParam(True))

    def do_hold(self):
        self.call.setHold(pj.CallOpParam(True))

    def do_resume(self):
        parameters = pj.CallOpParam(True)
        parameters.opt.flag = pj.PJSUA_CALL_UNHOLD
        self.call.reinvite(parameters)

    def do_hangup(self):
        self.call.hangup(pj.CallOpParam())

    def do_listen(self, seconds, frequencies):
        """Says in so many seconds how loud each frequency was, and the longest silence."""
        path = os.path.join(self.folder, f"heard{time.monotonic_ns()}.wav")
        self.recorder = pj.AudioMediaRecorder()
        self.recorder.createRecorder(path)
        self.hum.startTransmit(self.recorder)
        audio = self.call.audio()
        if audio:
            audio.startTransmit(self.recorder)
        self.listening = (time.monotonic() + seconds, path, frequencies)

    def heard(self):
        _, path, frequencies = self.listening
        self.recorder = self.listening = None
        samples, rate = recording(path)
        levels = {str(f): round(level(samples, rate, f), 4) for f in frequencies}
        say(event="heard", levels=levels, silence_ms=silence(samples, rate))

    def do_quit(self):
        self.endpoint.libDestroy()
        say(event="gone")
        # The bindings' own clean-up order at exit is not defined.
        os._exit(0)


def recording(path):
    """Reads a recording; its header is written by the bridge's own thread."""
    for _ in range(100):
        try:
            with wave.open(path) as file:
                rate, count = file.getframerate(), file.getnframes()
                return struct.unpack(f"<{count}h", file.readframes(count)), rate
        except (wave.Error, EOFError):
            time.sleep(0.02)
    return (), 16000


def tone(frequency, volume=0):
    """A generator that plays one frequency without end, at the usual volume for 0."""
    description = pj.ToneDesc()
    description.freq1, description.on_msec, description.off_msec = frequency, 1000, 0
    description.volume = volume
    tones = pj.ToneDescVector()
    tones.append(description)
    generator = pj.ToneGenerator()
    generator.createToneGenerator(16000, 1)
    generator.play(tones, True)
    return generator


def main():
    name, where, frequency = sys.argv[1], sys.argv[2], int(sys.argv[3])
    registrar = sys.argv[5] if 5 < len(sys.argv) else None
    address, port = where.rsplit(":", 1)
    phone = Phone(name, address, int(port), frequency, sys.argv[4], registrar)
    say(event="ready")
    orders = queue.Queue()
    threading.Thread(target=read, args=(orders,), daemon=True).start()
    while True:
        wait = max(phone.listening[0] - time.monotonic(), 0) if phone.listening else None
        try:
            what, *arguments = orders.get(timeout=wait)
        except queue.Empty:
            phone.heard()
            continue
        try:
            getattr(phone, f"do_{what}")(*arguments)
        except pj.Error as error:
            say(event="error", what=what, reason=error.info())


def read(orders):
    for line in sys.stdin:
        orders.put(json.loads(line))
    orders.put(["quit"])


if __name__ == "__main__":
    main()
