"""Prints how many recorded cases each provider passes."""

from collections import Counter


def pytest_terminal_summary(terminalreporter):
    passed, run = Counter(), Counter()
    for outcome in ("passed", "failed"):
        for report in terminalreporter.stats.get(outcome, ()):
            provider = dict(getattr(report, "user_properties", ())).get("provider")
            if provider is not None and report.when == "call":
                run[provider] += 1
                passed[provider] += outcome == "passed"
    if run:
        terminalreporter.section(f"provider cases: {passed.total()} of {run.total()} pass")
        counts = [f"{provider} {passed[provider]}/{run[provider]}" for provider in sorted(run)]
        for start in range(0, len(counts), 6):
            terminalreporter.write_line("   ".join(counts[start : start + 6]))
