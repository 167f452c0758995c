"""A small stand-in for the server of W&B: what its client, its core and its agent ask for, and no more.

It keeps runs as the client sends them, hands out the points of a sweep one after another, and judges nothing.
The answers follow the queries of wandb 0.31. The real service does more, and may do it in another way.
"""

import gzip
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ENTITY = "somebody"
KEY = "0" * 40


@dataclass
class Run:
    name: str
    bucket: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    exit_code: int | None = None
    files: dict[str, bytes] = field(default_factory=dict)

    @property
    def config(self) -> dict[str, Any]:
        entries = json.loads(self.bucket.get("config") or "{}")
        return {key: entry["value"] for key, entry in entries.items() if key != "_wandb"}


@dataclass
class Server:
    """What a stand-in has been sent, and what its sweep hands out."""

    url: str = ""
    runs: dict[str, Run] = field(default_factory=dict)
    sweeps: dict[str, str] = field(default_factory=dict)  # id -> its config as YAML
    points: list[dict[str, Any]] = field(default_factory=list)  # that the agent is still to get
    running: list[dict[str, bool]] = field(default_factory=list)  # what its heartbeats said
    unknown: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    # ------------------------------------------------------------------ GraphQL

    def answer(self, query: str, variables: dict[str, Any]) -> dict[str, Any]:
        match = re.search(r"\b(?:query|mutation)\s+(\w+)", query)
        action = getattr(self, f"on_{match[1] if match else ''}", None)
        if action is None:
            self.unknown.append(query)
            return {}
        with self.lock:
            return action(variables)

    def on_Viewer(self, _: dict[str, Any]) -> dict[str, Any]:
        viewer = {"id": "1", "username": ENTITY, "entity": ENTITY, "flags": "{}", "teams": {"edges": []}}
        return {"viewer": viewer}

    def on_ServerFeaturesQuery(self, _: dict[str, Any]) -> dict[str, Any]:
        return {"serverInfo": {"features": []}}

    def on_OrganizationCoreWeaveOrganizationID(self, _: dict[str, Any]) -> dict[str, Any]:
        return {"entity": None}

    def on_RunResumeStatus(self, variables: dict[str, Any]) -> dict[str, Any]:
        run = self.runs.get(variables["name"])
        return {"model": {"id": "1", "name": variables["project"], "bucket": run and self._resumed(run)}}

    def _resumed(self, run: Run) -> dict[str, Any]:
        last = json.dumps(run.history[-1]) if run.history else "{}"
        return {
            **{"id": run.name, "name": run.name, "summaryMetrics": json.dumps(run.summary)},
            **{key: run.bucket.get(key) for key in ("displayName", "config", "tags")},
            **{"historyLineCount": len(run.history), "historyTail": json.dumps([last])},
            **{"logLineCount": 0, "eventsLineCount": 0, "eventsTail": "[]"},
            "wandbConfig": json.dumps({"t": 1}),  # a client has begun it
        }

    def on_UpsertBucket(self, variables: dict[str, Any]) -> dict[str, Any]:
        name = variables["name"] or variables["id"]
        run = self.runs.setdefault(name, Run(name))
        run.bucket |= {key: value for key, value in variables.items() if value is not None}
        project = {"id": "1", "name": variables["project"], "entity": {"id": "1", "name": ENTITY}}
        bucket = {"id": name, "name": name, "description": "", "project": project}
        bucket |= {"displayName": run.bucket.get("displayName"), "config": run.bucket.get("config")}
        bucket |= {"sweepName": run.bucket.get("sweep"), "historyLineCount": len(run.history)}
        return {"upsertBucket": {"bucket": bucket, "inserted": True}}

    def on_CreateRunFiles(self, variables: dict[str, Any]) -> dict[str, Any]:
        at = f"{self.url}/upload/{variables['run']}"
        files = [{"name": name, "uploadUrl": f"{at}/{name}"} for name in variables["files"]]
        return {"createRunFiles": {"runID": variables["run"], "uploadHeaders": [], "files": files}}

    def on_UpsertSweep(self, variables: dict[str, Any]) -> dict[str, Any]:
        name = f"sweep{len(self.sweeps) + 1}"
        self.sweeps[name] = variables["config"]
        project = {"id": "1", "name": variables["projectName"], "entity": {"id": "1", "name": ENTITY}}
        return {"upsertSweep": {"sweep": {"name": name, "project": project}, "configValidationWarnings": []}}

    def on_SweepWithRuns(self, variables: dict[str, Any]) -> dict[str, Any]:
        name = variables["sweep"]
        sweep = {"id": name, "name": name, "config": self.sweeps[name], "state": "RUNNING"}
        return {"project": {"sweep": sweep | {"runs": {"edges": []}}}}

    def on_CreateAgent(self, _: dict[str, Any]) -> dict[str, Any]:
        return {"createAgent": {"agent": {"id": "agent"}}}

    def on_Heartbeat(self, variables: dict[str, Any]) -> dict[str, Any]:
        """A point after another, and the end when there is none left."""
        running = json.loads(variables["runState"])
        self.running.append(running)
        commands: list[dict[str, Any]] = []
        if not running and self.points:
            args = {key: {"value": value} for key, value in self.points.pop(0).items()}
            name = f"trial{len(self.runs) + 1}"
            commands = [{"type": "run", "run_id": name, "program": "physml", "args": args}]
        elif not running:
            commands = [{"type": "exit"}]
        return {"agentHeartbeat": {"agent": {"id": "agent"}, "commands": json.dumps(commands)}}

    # ------------------------------------------------------------------ the stream of a run

    def stream(self, name: str, sent: dict[str, Any]) -> None:
        run = self.runs[name]
        with self.lock:
            files = sent.get("files") or {}
            if history := files.get("wandb-history.jsonl"):
                # as the service: from an offset on, what is sent counts
                run.history[history["offset"] :] = [json.loads(line) for line in history["content"]]
            if summary := files.get("wandb-summary.json"):
                run.summary = json.loads(summary["content"][-1])
            if sent.get("complete"):
                run.exit_code = sent.get("exitcode")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: Server

    def do_POST(self) -> None:
        body = self._body()
        answer: dict[str, Any] = {}
        if self.path == "/graphql":
            sent = json.loads(body)
            answer = {"data": self.state.answer(sent["query"], sent.get("variables") or {})}
        elif match := re.fullmatch(r"/files/[^/]+/[^/]+/([^/]+)/file_stream", self.path):
            self.state.stream(match[1], json.loads(body))
        else:
            self.state.unknown.append(f"POST {self.path}")
        self._send(answer)

    def do_PUT(self) -> None:
        _, _, run, name = self.path.split("/", 3)
        self.state.runs[run].files[name] = self._body()
        self._send({})

    def do_GET(self) -> None:
        self.state.unknown.append(f"GET {self.path}")
        self._send({})

    def _body(self) -> bytes:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body

    def _send(self, answer: dict[str, Any]) -> None:
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


class Listener(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """A client that ends without a word is no error of the stand-in."""


@contextmanager
def served() -> Iterator[Server]:
    """A stand-in that listens on a free port until the end of the block."""
    state = Server()
    http = Listener(("127.0.0.1", 0), type("Bound", (Handler,), {"state": state}))
    state.url = f"http://127.0.0.1:{http.server_address[1]}"
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        http.shutdown()
        http.server_close()
        thread.join()
