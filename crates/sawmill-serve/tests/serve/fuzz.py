"""What Schemathesis is told beside the description of the API."""

import schemathesis

# Of a request that may succeed, names that are there, so that more is tried than refusals.
THERE = {"topic": "emails", "group": "default"}
EARLIEST = "1970-01-02T00:00:00Z"


def mend(message):
    """The description has no words for times after 1970, and for the length of a text in bytes."""
    for name in ("at", "from"):
        text = message.get(name)
        if isinstance(text, str) and text[4:5] == "-" and text < EARLIEST:
            message[name] = EARLIEST
    if len(str(message.get("unique", "")).encode(errors="replace")) > 200:
        message["unique"] = "long"


@schemathesis.hook
def before_call(context, case, kwargs):
    if case.meta is None or not case.meta.generation.mode.is_positive:
        return
    for name, value in THERE.items():
        # Some of each stay as they are, and no topic that others need is deleted.
        if name in (case.path_parameters or {}) and len(str(case.path_parameters[name])) % 4 and case.method != "DELETE":
            case.path_parameters[name] = value
    body = case.body
    if isinstance(body, dict):
        messages = [body, *(body.get("messages") or [])]
        for message in messages:
            mend(message)
        # The one or the other, as the description says in words.
        if any("unique" in message for message in messages):
            (case.headers or {}).pop("Idempotency-Key", None)
        # Nobody has the time to wait.
        if isinstance(body.get("wait_seconds"), (int, float)):
            body["wait_seconds"] = min(body["wait_seconds"], 0.05)
