"""An SMTP server for tests: FOLDER MODE, where MODE is none, starttls, implicit or blocked.

It appends what it accepts to FOLDER/mails, a line of JSON each, as Python reads it, and writes its port to FOLDER/port. With encryption it wants the
user mill with the password s3cret. Some recipients and senders are refused: see below. A server that is blocked refuses everybody at once.
"""
import asyncio
import email
import email.policy
import json
import os
import ssl
import sys

from aiosmtpd.smtp import SMTP, AuthResult

folder, mode = sys.argv[1:3]
refused_once = set()


class Handler:
    async def handle_MAIL(self, server, session, envelope, address, options):
        if address.startswith("stranger@"):
            return "553 5.7.1 sender address not owned by user"
        envelope.mail_from = address
        envelope.mail_options.extend(options)
        return "250 OK"

    async def handle_RCPT(self, server, session, envelope, address, options):
        if address.startswith("nobody@"):
            return "550 5.1.1 no such mailbox here"
        if address.startswith("busy@") and address not in refused_once:
            refused_once.add(address)
            return "451 4.3.0 come back later"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server, session, envelope):
        read = email.message_from_bytes(envelope.content, policy=email.policy.default)
        parts = [part for part in read.walk() if not part.is_multipart()]
        mail = {
            "from": envelope.mail_from,
            "to": envelope.rcpt_tos,
            "headers": {name.lower(): str(value) for name, value in read.items()},
            "kind": read.get_content_type(),
            "parts": {part.get_content_type(): part.get_content() for part in parts},
            "defects": [str(defect) for part in read.walk() for defect in part.defects],
            "encrypted": session.ssl is not None or mode == "implicit",
            "user": session.auth_data and session.auth_data.login.decode(),
        }
        with open(os.path.join(folder, "mails"), "a") as mails:
            mails.write(json.dumps(mail) + "\n")
        return "250 accepted"


def authenticate(server, session, envelope, mechanism, data):
    good = (data.login, data.password) == (b"mill", b"s3cret")
    return AuthResult(success=good, handled=good, auth_data=data)


async def refuse(reader, writer):
    writer.write(b"554 5.7.1 your address is blocked\r\n")
    await reader.readline()
    writer.close()


async def main():
    context = None
    if mode in ("starttls", "implicit"):
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(os.path.join(folder, "server.pem"))
    settings = {"authenticator": authenticate, "auth_required": context is not None}
    if mode == "starttls":
        settings.update(tls_context=context, require_starttls=True)
    if mode == "implicit":
        settings.update(auth_require_tls=False)
    loop = asyncio.get_running_loop()
    outer = context if mode == "implicit" else None
    if mode == "blocked":
        server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    else:
        server = await loop.create_server(lambda: SMTP(Handler(), **settings), "127.0.0.1", 0, ssl=outer)
    new = os.path.join(folder, "port.new")
    with open(new, "w") as file:
        file.write(str(server.sockets[0].getsockname()[1]))
    os.rename(new, os.path.join(folder, "port"))
    # It ends when it is killed, or when whoever started it is gone.
    parent = os.getppid()
    while os.getppid() == parent:
        await asyncio.sleep(0.5)


asyncio.run(main())
