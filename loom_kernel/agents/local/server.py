"""The process in which a local model works: ``python -m loom_kernel.agents.local.server MODEL.gguf``.

Prints one line of JSON with its address, serves the OpenAI protocol on loopback to whoever knows the key, and ends when
its standard input does: with its parent, however that ends. Imports nothing of ours.
"""

import json
import os
import sys


def main() -> None:
    """Serve until nobody is there any more."""
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = sys.argv[1]
    parameters.model_alias = {os.path.basename(sys.argv[1])}
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    parameters.n_ctx = int(os.environ["LOOM_LOCAL_CONTEXT"])
    parameters.n_parallel = 1
    parameters.verbosity = -1
    parameters.ui = False
    parameters.offline = True
    parameters.endpoint_slots = False
    parameters.cors_origins = ""
    parameters.api_keys = [os.environ.pop("LOOM_LOCAL_KEY")]
    parameters.n_batch = parameters.n_ubatch = 128  # small bites, between which it sees that the client went
    parameters.sleep_idle_seconds = int(os.environ.get("LOOM_LOCAL_IDLE_S", "300"))
    for threads in (parameters.cpuparams, parameters.cpuparams_batch):
        threads.n_threads = int(os.environ["LOOM_LOCAL_THREADS"])
    server = xllamacpp.Server(parameters)
    print(json.dumps({"url": server.listening_address, "pid": os.getpid()}), flush=True)
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
