"""Ollama. A full queue is a 503; a model that is not pulled is a 404; a stream breaks off with status -1.

Sources: ollama/ollama `server/routes.go`, `docs/api/errors.mdx`; ollama 0.6.3.
"""

from __future__ import annotations

from tidegate.providers.pack import Pack

OLLAMA = Pack(name="ollama", hosts=("ollama.com",), modules=("ollama",))
