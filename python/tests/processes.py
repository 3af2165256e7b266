"""Runs a function in several processes that form a gloo group."""

import contextlib
import io
import multiprocessing
import os
import runpy
import socket
import sys
import traceback
from datetime import timedelta
from multiprocessing.connection import wait

import torch
import torch.distributed as dist

# Child processes are forked from a server that has already imported these modules, since importing torch is slow.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        "torch._dynamo",
        "torch.distributed.checkpoint.state_dict",
        "torch.distributed.fsdp",
        "torch.distributed.tensor",
        "tensorion",
    ]
)


class Failure(Exception):  # noqa: N818
    """The traceback or the exit code of a process that returned no result."""


def _grouped(function, rank, world_size, store, timeout, arguments):
    dist.init_process_group(
        "gloo",
        store=dist.FileStore(str(store), world_size),
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=timeout),
    )
    return function(rank, world_size, *arguments)


def _program(path, rank, world_size, port, arguments):
    """Run a program with the environment of torchrun, and return what it prints."""
    os.environ.update(
        {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world_size)}
        | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    )
    sys.argv = [str(path), *map(str, arguments)]
    with contextlib.redirect_stdout(io.StringIO()) as output:
        runpy.run_path(str(path), run_name="__main__")
    return output.getvalue()


def _main(connection, task, *arguments):
    torch.set_num_threads(1)
    try:
        result = (task(*arguments), None)
    except Exception:
        result = (None, traceback.format_exc())
    buffer = io.BytesIO()
    torch.save(result, buffer)
    connection.send_bytes(buffer.getvalue())
    connection.close()
    if result[1] is not None:
        os._exit(1)  # Skip the shutdown of the process group, which may wait for other ranks.
    if dist.is_initialized():
        dist.destroy_process_group()


def outcomes(world_size, function, *arguments, folder, timeout=60):
    """Return the result of `function(rank, world_size, *arguments)` in each process, or its Failure."""
    store = folder / f"store{len(list(folder.iterdir()))}"
    calls = [(_grouped, function, rank, world_size, store, timeout, arguments) for rank in range(world_size)]
    return _outcomes(calls, timeout)


def _outcomes(calls, timeout):
    world_size = len(calls)
    processes, readers = [], []
    for call in calls:
        reader, writer = CONTEXT.Pipe(duplex=False)
        process = CONTEXT.Process(target=_main, args=(writer, *call), daemon=True)
        process.start()
        writer.close()
        processes.append(process)
        readers.append(reader)
    results = [Failure("did not answer in time")] * world_size
    try:
        open_readers = dict(zip(readers, range(world_size), strict=True))
        while open_readers:
            ready = wait(list(open_readers), timeout=2 * timeout)
            if not ready:
                break
            for reader in ready:
                rank = open_readers.pop(reader)
                try:
                    value, error = torch.load(io.BytesIO(reader.recv_bytes()), weights_only=False)
                    results[rank] = value if error is None else Failure(error)
                except EOFError:
                    processes[rank].join(timeout)
                    results[rank] = Failure(f"exit code {processes[rank].exitcode}")
    finally:
        for process in processes:
            process.join(5)
            if process.is_alive():
                process.kill()
    return results


def run(world_size, function, *arguments, folder):
    """Return the results by rank. Raise if a process failed."""
    return _checked(outcomes(world_size, function, *arguments, folder=folder))


def run_program(world_size, path, *arguments):
    """Run a program in several processes like torchrun, but faster, and return what each process prints."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return _checked(_outcomes([(_program, path, rank, world_size, port, arguments) for rank in range(world_size)], 60))


def _checked(results):
    for rank, result in enumerate(results):
        if isinstance(result, Failure):
            raise AssertionError(f"rank {rank} of {len(results)}: {result}")
    return results
