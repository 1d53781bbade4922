#!/usr/bin/env python3
"""A Sawmill worker in Python, with nothing but the standard library.

It adds up the numbers in each message of a topic:

    sawmill serve &
    sawmill push sums '[1, 2, 3]'
    python3 worker.py http://127.0.0.1:7171 sums

If the server wants an access key, put it into SAWMILL_ACCESS_KEY (`sawmill key create --topic sums --access r`).
"""

import argparse
import json
import os
import sys
import time
import urllib.error
import urllib.request


class Sawmill:
    def __init__(self, server, topic, group="default", key=None):
        self.topic = f"{server.rstrip('/')}/api/v1/topics/{topic}"
        self.group = group
        self.headers = {"Content-Type": "application/json"}
        if key:
            self.headers["Authorization"] = f"Bearer {key}"

    def call(self, path, body=None, timeout=90):
        data = json.dumps(body or {}).encode()
        request = urllib.request.Request(self.topic + path, data, self.headers, method="POST")
        with urllib.request.urlopen(request, timeout=timeout) as response:
            text = response.read()
        return json.loads(text) if text else None

    def pull(self, most=1, wait=30, timeout=60):
        """The next messages; none if none came in time."""
        body = {"max": most, "wait_seconds": wait, "timeout_seconds": timeout}
        return self.call(f"/groups/{self.group}/pull", body)["jobs"]

    def done(self, job):
        self.call(f"/jobs/{job['receipt']}/done")

    def failed(self, job, error, retry=True):
        self.call(f"/jobs/{job['receipt']}/failed", {"error": error, "retry": retry})

    def extend(self, job, seconds):
        """For jobs that take longer: call it before their time is over."""
        self.call(f"/jobs/{job['receipt']}/extend", {"seconds": seconds})


def handle(job):
    """What becomes of a message. A ValueError means that no further attempt can help."""
    numbers = json.loads(job["payload"])
    print(job["id"], sum(numbers), flush=True)


def work(queue, limit):
    handled = 0
    while limit is None or handled < limit:
        try:
            jobs = queue.pull()
        except urllib.error.HTTPError as error:
            if error.code < 500 and error.code != 429:
                sys.exit(f"the server refused: {error.read().decode()}")
            jobs = pause(error)
        except OSError as error:
            jobs = pause(error)
        for job in jobs:
            handled += 1
            try:
                handle(job)
            except ValueError as error:
                answer(queue.failed, job, f"not to be understood as JSON: {error}", False)
            except Exception as error:
                answer(queue.failed, job, repr(error))
            else:
                answer(queue.done, job)


def answer(how, job, *more):
    """An answer that does not arrive is no loss: the message is run again."""
    try:
        how(job, *more)
    except OSError as error:
        print(f"the answer to {job['id']} did not count: {error}", file=sys.stderr)


def pause(error):
    print(f"trying again in a second: {error}", file=sys.stderr)
    time.sleep(1)
    return []


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Adds up the numbers in each message of a topic.")
    parser.add_argument("server")
    parser.add_argument("topic")
    parser.add_argument("--group", default="default")
    parser.add_argument("--limit", type=int, help="end after so many messages")
    args = parser.parse_args()
    work(Sawmill(args.server, args.topic, args.group, os.environ.get("SAWMILL_ACCESS_KEY")), args.limit)
