"""A real phone (baresip) that does what it is told on standard input.

    baresip_phone.py NAME ADDRESS:PORT TONE_HZ TRANSPORT [REGISTRAR]

Speaks as pjsip_phone.py does.
"""

import asyncio
import json
import os
import struct
import sys

from baresip.config import Account, Config
from baresip.errors import AudioNotActive, AudioRestarted
from baresip.events import Event
from baresip.runtime import Runtime
from baresip.ua import UserAgent

from sound import level, silence

STATES = {Event.CALL_ESTABLISHED: "CONFIRMED", Event.CALL_CLOSED: "DISCONNECTED"}


def say(**what):
    # One write a line: the library calls from threads of its own.
    os.write(1, (json.dumps(what) + "\n").encode())


class Phone:
    def __init__(self, agent):
        self.agent = agent
        self.call = None

    def take(self, call):
        self.call = call
        call.on(self.on_event)

    def on_incoming(self, call):
        self.take(call)
        asyncio.get_running_loop().create_task(call.answer())

    def on_event(self, event):
        if event.event in STATES:
            say(event="call", state=STATES[event.event], code=0)

    async def do_call(self, uri):
        self.take(await self.agent.dial(uri))

    async def do_hold(self):
        await self.call.hold()
        say(event="media", active=False)

    async def do_resume(self):
        await self.call.resume()
        say(event="media", active=True)

    async def do_hangup(self):
        await self.call.hangup()

    async def do_listen(self, seconds, frequencies):
        # In the background: the next order may change the call meanwhile.
        asyncio.get_running_loop().create_task(self.listen(seconds, frequencies))

    async def listen(self, seconds, frequencies):
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        heard, rate, first = bytearray(), 8000, True
        while loop.time() < end:
            try:
                rate = self.call.audio.info().rx_sample_rate or rate
                sound = self.call.audio.read(1 << 20)
            except (AudioNotActive, AudioRestarted):
                sound = b""
            # What was waiting before is not part of it.
            heard += b"" if first else sound
            first = False
            await asyncio.sleep(0.02)
        # Where nothing came nothing was played either.
        missing = int(rate * seconds) - len(heard) // 2
        samples = struct.unpack(f"<{len(heard) // 2}h", bytes(heard))
        levels = {str(f): round(level(samples, rate, f), 4) for f in frequencies}
        gap = silence(samples, rate)
        say(event="heard", levels=levels, silence_ms=max(gap, missing * 1000 // rate - 60))


async def main():
    name, where, frequency = sys.argv[1], sys.argv[2], int(sys.argv[3])
    transport, registrar = sys.argv[4], sys.argv[5] if 5 < len(sys.argv) else None
    address, port = where.rsplit(":", 1)
    runtime = Runtime()
    # Pinned to the address: it would not look at loopback by itself.
    await runtime.start(Config(net_interface=address, audio_source=f"ausine,{frequency}",
                               native_log_level=os.environ.get("PHONE_LOG_LEVEL", "warning"),
                               extra_config_text=f"sip_listen {address}:{port}\n"))
    account = Account(name, registrar or f"{address}:{port}", "", audio_codecs=("pcmu",),
                      reg_interval=300 if registrar else 0, transport=transport)
    agent = await UserAgent.create(runtime, account)
    phone = Phone(agent)
    agent.on_incoming(phone.on_incoming)
    if registrar:
        await agent.register()
        say(event="registered", code=200)
    say(event="ready")
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        what, *arguments = json.loads(line)
        if what == "quit":
            break
        try:
            await getattr(phone, f"do_{what}")(*arguments)
        except Exception as error:
            say(event="error", what=what, reason=repr(error))
    await runtime.close()
    say(event="gone")
    os._exit(0)


asyncio.run(main())
