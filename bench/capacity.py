"""What the measured cost of a message means for machines, visitors and disks."""

from statistics import median

from bench.report import Report

CORES = (2, 8, 32)
# A visitor in a lively conversation; most read much longer than they write.
SECONDS_BETWEEN_MESSAGES = 20
# Processors that are busier than this make everybody wait.
BUSY = 0.6


def page(report: Report) -> str:
    """The figures of docs/scaling.md."""
    application, database = report.application("ours 2"), report.database("ours 2")
    cost = application + database
    written = median(sample.written for sample in report.samples["ours 2"])
    each = report.bytes_each
    sentence = (
        f"A durable message costs {application:.0f} us of processor in the application and "
        f"{database:.0f} us in the database, {written:,.0f} bytes of write-ahead log, and "
        f"{each:,.0f} bytes on disk with its key and all indexes."
    )
    head = f"| cores | messages a second at {BUSY:.0%} busy | a day | visitors writing at once |"
    lines = [sentence, "", head, "| --- | --- | --- | --- |"]
    for cores in CORES:
        rate = cores * BUSY * 1e6 / cost
        lines.append(
            f"| {cores} | {rate:,.0f} | {rate * 86400 / 1e6:,.0f} million | "
            f"{rate * SECONDS_BETWEEN_MESSAGES:,.0f} |"
        )
    share = (
        f"- Of {cost:.0f} us, {application / cost:.0%} is in the application, which scales by "
        "adding processes and hosts. One core of the database takes "
        f"{1e6 / database:,.0f} messages a second."
    )
    disk = (
        f"- A million messages a day are {written * 1e6 / 2**30:.1f} GB of log a day and "
        f"{each * 1e6 * 365 / 2**30:,.0f} GB of tables a year; keys go after a week, so less."
    )
    return "\n".join([*lines, "", share, disk]) + "\n"
