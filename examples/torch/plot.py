"""Draws what train.py has written: losses against steps, and the time of a step.

    python examples/torch/plot.py -o training.svg tutti.json gloo.json
"""

import argparse
import json

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as pyplot  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("results", nargs="+")
    arguments = parser.parse_args()
    results = []
    for path in arguments.results:
        with open(path, encoding="utf-8") as file:
            results.append(json.load(file))
    names = [f"{result['backend']}, {result['ranks']} ranks" for result in results]
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4), width_ratios=(2, 1))
    for name, result, style in zip(names, results, ("-", "--", ":", "-.") * len(results)):
        left.plot(result["losses"], style, label=name)
    left.set(xlabel="step", ylabel="cross entropy", yscale="log")
    left.legend()
    times = [result["step_ms"] for result in results]
    sent = [min(1.0, result["communication_share"]) * result["step_ms"] for result in results]
    right.bar(names, times, color="lightgray", label="step")
    right.bar(names, sent, color="tab:blue", width=0.4, label="gradients on their way")
    right.set(ylabel="ms")
    right.tick_params(axis="x", labelrotation=20)
    right.legend()
    figure.tight_layout()
    figure.savefig(arguments.output)


if __name__ == "__main__":
    main()
