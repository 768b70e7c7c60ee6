"""The application of the demo's worker and web server: the example, as it is."""

from tidegate.testing.demo.example import load_example

app = load_example().app
