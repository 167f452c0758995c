"""`physml site`: the results as web pages."""

import argparse
from pathlib import Path
from typing import Any

from physml.base.paths import display_path, expanded

PORT = 8000


def add(commands: Any) -> None:
    site = commands.add_parser("site", help="write the results as web pages")
    site.add_argument(
        "--out", default="site", metavar="DIR", help="the folder: new, empty, or a site of before (site)"
    )
    site.add_argument("--url", metavar="URL", help="where it will be served: adds a sitemap")
    site.add_argument("--api", action="store_true", help="with a reference of the library, by pdoc")
    site.add_argument(
        "--serve",
        nargs="?",
        type=_port,
        const=PORT,
        metavar="PORT",
        help=f"then serve it on this machine alone ({PORT}), until Ctrl-C",
    )
    site.set_defaults(command=_run)


def _port(text: str) -> int:
    if not (text.isdecimal() and int(text) < 1 << 16):
        raise argparse.ArgumentTypeError(f"a port must be a number from 0 to 65535; got {text!r}")
    return int(text)


def _run(options: argparse.Namespace) -> int:
    from physml.site.build import build

    out = expanded(options.out)
    pages, size = build(out, options.url, api=options.api)
    print(f"written: {display_path(out / 'index.html')}, {pages} pages, {size / 2**20:.0f} MiB")
    if options.serve is not None:
        _serve(out, options.serve)
    return 0


def _serve(folder: Path, port: int) -> None:
    import functools
    from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

    handler = functools.partial(SimpleHTTPRequestHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", port), handler) as server:
        print(f"http://127.0.0.1:{server.server_port}/ (Ctrl-C ends it)", flush=True)
        server.serve_forever()
