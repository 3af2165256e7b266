"""scripts/get_data.sh with a file server on the loopback interface."""

import hashlib
import http.server
import io
import os
import shutil
import subprocess
import tarfile
import threading
import zipfile
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


class Server(http.server.ThreadingHTTPServer):
    """Serves `files`, optionally truncates responses or ignores ranges, and records (path, range) of all requests."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = {}
        self.cut_after = None
        self.ranges = True
        self.requests = []


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        server = self.server
        start = self.headers.get("Range")
        server.requests.append((self.path, start))
        body = server.files.get(self.path.lstrip("/"))
        if body is None:
            self.send_error(404)
            return
        total = len(body)
        if start is not None and server.ranges:
            first = int(start.removeprefix("bytes=").split("-")[0])
            if first >= total:
                self.send_error(416)
                return
            body = body[first:]
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {first}-{total - 1}/{total}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: server.cut_after])

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def get_data(tmp_path, server):
    """Run a copy of the script whose table lists `sources`: [(name, file, bytes, checksum or None)]."""

    def run(sources, *arguments, environment=()):
        scripts = tmp_path / "scripts"
        scripts.mkdir(exist_ok=True)
        shutil.copy(SCRIPTS / "get_data.sh", scripts)
        lines = ["# a comment"]
        for name, file, body, checksum in sources:
            server.files[file] = body
            checksum = checksum or "sha256:" + hashlib.sha256(body).hexdigest()
            lines.append(f"{name} {checksum} https://publisher.invalid/folder/{file}")
        (scripts / "data_sources.txt").write_text("\n".join(lines) + "\n")
        mirror = f"http://127.0.0.1:{server.server_address[1]}/"
        variables = {k: os.environ[k] for k in ("PATH", "HOME") if k in os.environ}
        return subprocess.run(
            [scripts / "get_data.sh", *arguments],
            env={**variables, "TENSORION_DATA_URL": mirror, **dict(environment)},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


def tar_of(files):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, body in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(body)
            archive.addfile(entry, io.BytesIO(body))
    return buffer.getvalue()


def zip_of(files):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, body in files.items():
            archive.writestr(name, body)
    return buffer.getvalue()


def tree(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


CONTENT = {"cifar-10-batches-bin/test_batch.bin": b"abc", "cifar-10-batches-bin/readme.html": b"<p>"}
FLAT = {"test_batch.bin": b"abc", "readme.html": b"<p>"}


@pytest.mark.parametrize(("file", "pack"), [("c.tar.gz", tar_of), ("c.tgz", tar_of), ("c.zip", zip_of)])
def test_archive_is_extracted_to_the_dataset_folder(get_data, server, tmp_path, file, pack):
    result = get_data([("cifar10", file, pack(CONTENT), None)], "cifar10", "made/here")
    assert result.returncode == 0, result.stderr
    assert "--data made/here" in result.stdout
    assert tree(tmp_path / "made/here") == {f"cifar10/{name}": body for name, body in FLAT.items()}

    before = len(server.requests)
    again = get_data([("cifar10", file, pack(CONTENT), None)], "cifar10", "made/here")
    assert again.returncode == 0
    assert "already exists" in again.stdout
    assert len(server.requests) == before


def test_plain_files_and_md5(get_data, tmp_path):
    bodies = {"a.gz": b"first", "b.gz": b"second"}
    sources = [("fashion-mnist", f, b, "md5:" + hashlib.md5(b).hexdigest()) for f, b in bodies.items()]
    sources.append(("other", "c.gz", b"third", None))
    result = get_data(sources, "fashion-mnist", environment=[("TENSORION_DATA", str(tmp_path / "all"))])
    assert result.returncode == 0, result.stderr
    assert tree(tmp_path / "all") == {f"fashion-mnist/{f}": b for f, b in bodies.items()}


def test_default_folder_is_data(get_data, tmp_path):
    assert get_data([("n", "a.gz", b"x", None)], "n").returncode == 0
    assert tree(tmp_path / "data") == {"n/a.gz": b"x"}


def test_wrong_checksum_is_an_error_and_leaves_no_files(get_data, tmp_path):
    wrong = "sha256:" + "0" * 64
    sources = [("n", "a.gz", b"good", None), ("n", "b.gz", b"bad", wrong)]
    result = get_data(sources, "n", "made")
    assert result.returncode == 1
    assert "b.gz is not the expected file" in result.stderr
    assert wrong in result.stderr
    assert not (tmp_path / "made").exists()

    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "keep").write_text("")
    assert get_data(sources, "n", "mine").returncode == 1
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["keep"]


def test_interrupted_download_resumes(get_data, server, tmp_path):
    body = os.urandom(300_000)
    server.cut_after = 100_000
    first = get_data([("n", "a.gz", body, None)], "n", "d")
    assert first.returncode == 1
    assert "same command again" in first.stderr
    assert not (tmp_path / "d" / "n").exists()

    server.cut_after = None
    second = get_data([("n", "a.gz", body, None)], "n", "d")
    assert second.returncode == 0, second.stderr
    assert server.requests == [("/a.gz", None), ("/a.gz", "bytes=100000-")]
    assert tree(tmp_path / "d") == {"n/a.gz": body}


@pytest.mark.parametrize("stale", ["no ranges", "too long"])
def test_download_restarts_if_it_cannot_resume(get_data, server, tmp_path, stale):
    body = os.urandom(1000)
    server.ranges = stale != "no ranges"
    (tmp_path / "d/.n.partial").mkdir(parents=True)
    (tmp_path / "d/.n.partial/a.gz").write_bytes(body[:400] if stale == "no ranges" else body + b"more")
    result = get_data([("n", "a.gz", body, None)], "n", "d")
    assert result.returncode == 0, result.stderr
    assert tree(tmp_path / "d") == {"n/a.gz": body}


def test_complete_download_is_not_repeated(get_data, server, tmp_path):
    archive = tar_of(CONTENT)
    (tmp_path / "d/.n.partial/content").mkdir(parents=True)
    (tmp_path / "d/.n.partial/content/half").write_bytes(b"an extraction that was killed")
    (tmp_path / "d/.n.partial/c.tgz").write_bytes(archive)
    result = get_data([("n", "c.tgz", archive, None)], "n", "d")
    assert result.returncode == 0, result.stderr
    assert server.requests == []
    assert tree(tmp_path / "d") == {f"n/{name}": body for name, body in FLAT.items()}


@pytest.mark.parametrize("missing", ["server", "file"])
def test_missing_file_is_an_error_and_leaves_no_files(get_data, server, tmp_path, missing):
    place = "9" if missing == "server" else f"{server.server_address[1]}/elsewhere"
    url = f"http://127.0.0.1:{place}"
    result = get_data([("n", "a.gz", b"x", None)], "n", "d", environment=[("TENSORION_DATA_URL", url)])
    assert result.returncode == 1
    assert f"could not download {url}/a.gz" in result.stderr
    assert not (tmp_path / "d").exists()


def test_bad_arguments_print_usage(get_data):
    sources = [("one", "a.gz", b"x", None), ("two", "b.gz", b"x", None)]
    result = get_data(sources, "three")
    assert result.returncode == 1
    assert "must be one of: one two; got three" in result.stderr
    assert get_data(sources).returncode == 2
    assert "usage" in get_data(sources, "--help").stdout


def test_real_table_lists_all_datasets_with_checksums():
    lines = (SCRIPTS / "data_sources.txt").read_text().splitlines()
    rows = [line.split() for line in lines if not line.startswith("#")]
    assert {row[0] for row in rows} == {"fashion-mnist", "cifar10", "cifar100", "tiny-imagenet", "imagenette"}
    for name, checksum, url in rows:
        algorithm, digest = checksum.split(":")
        assert len(bytes.fromhex(digest)) == {"sha256": 32, "md5": 16}[algorithm], name
        assert url.startswith("http")
