"""Capacity of machines and disks, computed from the measured cost of a message."""

from statistics import median

from bench.report import Report

CORES = (2, 8, 32)
# A busy visitor; most visitors spend much longer reading than writing.
SECONDS_BETWEEN_MESSAGES = 20
# Above this utilisation queueing delay grows quickly.
UTILISATION = 0.6


def scaling_figures(report: Report) -> str:
    """The figures of docs/scaling.md."""
    application, database = report.application("ours 2"), report.database("ours 2")
    cost = application + database
    written = median(sample.written for sample in report.samples["ours 2"])
    each = report.bytes_each
    sentence = (
        f"A durable message costs {application:.0f} us of CPU in the application and "
        f"{database:.0f} us in the database, {written:,.0f} bytes of write-ahead log, and "
        f"{each:,.0f} bytes on disk with its key and all indexes."
    )
    head = (
        f"| cores | messages a second at {UTILISATION:.0%} CPU | a day | visitors writing at once |"
    )
    lines = [sentence, "", head, "| --- | --- | --- | --- |"]
    for cores in CORES:
        rate = cores * UTILISATION * 1e6 / cost
        lines.append(
            f"| {cores} | {rate:,.0f} | {rate * 86400 / 1e6:,.0f} million | "
            f"{rate * SECONDS_BETWEEN_MESSAGES:,.0f} |"
        )
    share = (
        f"- {application / cost:.0%} of these {cost:.0f} us are spent in the application, which "
        "scales by adding processes and hosts. One database core handles "
        f"{1e6 / database:,.0f} messages a second."
    )
    disk = (
        f"- A million messages a day write {written * 1e6 / 2**30:.1f} GB of WAL a day and at most "
        f"{each * 1e6 * 365 / 2**30:,.0f} GB of tables a year (keys are deleted after a week)."
    )
    return "\n".join([*lines, "", share, disk]) + "\n"
