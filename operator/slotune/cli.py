"""The command line: what there is to type. Bodies are imported only when they run, so that --help is quick."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from slotune import __version__
from slotune.commands.argument_types import folder, image, namespace, not_empty, object_name, port, positive
from slotune.commands.diagnose_arguments import add_diagnose

__all__ = ["main", "make_parser"]

EXIT_CODES = """\
exit codes:
  0    found, or Pass
  1    replay: the answer costs more than the cheapest that was recorded, or breaks the promise
  2    invalid input: nothing was started or changed
  3    infeasible, or Fail
  4    inconclusive, or the budget ended before an answer
  5    invalid measurement: the measurement was at fault, not the configuration
  130  stopped by Ctrl-C; tune: finished trials are kept, the same command goes on from them
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``slotune`` with ``argv`` (the process's own arguments by default) and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:2] == ["engine", "serve"]:  # everything behind it is llama-server's, --help included
        return _engine_serve(arguments[2:])
    parser = make_parser()
    args = parser.parse_args(arguments)
    run: Callable[[argparse.Namespace], int] | None = getattr(args, "run", None)
    if run is None:
        args.usage.print_help()
        return 2
    from slotune.commands.running import run_command

    return run_command(run, args)


def make_parser() -> argparse.ArgumentParser:
    """The parser of everything but ``engine serve``, whose arguments are llama-server's."""
    parser = argparse.ArgumentParser(
        prog="slotune",
        description="Find the cheapest llama.cpp configuration that was measured to keep a promise to users.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"slotune {__version__}")
    parser.set_defaults(usage=parser)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    _add_tune(commands)
    _add_plan(commands)
    _add_bench(commands)
    add_diagnose(commands).set_defaults(run=_diagnose, stopped="nothing was changed")
    _add_validate(commands)
    _add_export(commands)
    _add_replay(commands)
    _add_engine(commands)
    _add_operator(commands)
    _add_release(commands)
    _add_crds(commands)
    _add_trial(commands)
    _add_survey(commands)
    return parser


def _add_tune(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    tune = commands.add_parser(
        "tune",
        help="measure until the cheapest configuration that keeps the promise is known",
        description="Measure candidate configurations on real servers of this machine until the cheapest one that "
        "keeps the promise is known. Finished trials are kept in --out: the same command goes on from them.",
    )
    _manifest(tune)
    _models(tune)
    _engine(tune)
    tune.add_argument("--gpu-class", metavar="NAME", help="the GPUClass that this machine is, when there are several")
    tune.add_argument("--out", type=folder, metavar="DIR", help="where results and report.html go (slotune-out/NAME)")
    _output(tune)
    tune.set_defaults(run=_tune, stopped="finished trials are kept, the same command goes on from them")


def _add_plan(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    plan = commands.add_parser(
        "plan",
        help="list every candidate and why it is left out; run nothing",
        description="List every candidate with its predicted memory, the fewest replicas it could do with, and why it "
        "is left out. Nothing is started.",
    )
    _manifest(plan)
    _models(plan)
    _output(plan)
    plan.set_defaults(run=_plan)


def _add_bench(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    bench = commands.add_parser(
        "bench",
        help="one verdict on a server that already runs",
        description="Send the workload to a llama-server that already runs, and say whether it keeps the promise. The "
        "server gets its share of the peak rate: all of it, divided by the replicas.",
    )
    _manifest(bench)
    bench.add_argument("--url", required=True, help="address of the server, e.g. http://127.0.0.1:8080")
    bench.add_argument(
        "--replicas", type=int, metavar="N", help="servers that share the peak rate (those of the manifest)"
    )
    bench.add_argument(
        "--api-key-file", type=Path, metavar="FILE", help="file that holds the server's API key, if it wants one"
    )
    _output(bench)
    bench.set_defaults(run=_bench)


def _add_validate(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    validate = commands.add_parser(
        "validate",
        help="check a manifest and say everything that is wrong with it",
        description="Check manifests without running anything, and say everything that is wrong at once.",
    )
    _manifest(validate)
    validate.set_defaults(run=_validate)


def _add_export(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    export = commands.add_parser(
        "export",
        help="print the winner of a finished tune as a patch or as flags, or the whole search as one file",
        description="Print the winner that `slotune tune` found, ready to apply; or the whole search (every question "
        "and every result, no prompt and no path), for `slotune replay`.",
    )
    export.add_argument("directory", type=Path, nargs="?", metavar="DIR", help="the --out of a finished tune")
    export.add_argument(
        "--llama-deployment",
        type=object_name,
        metavar="NAME",
        help="instead of DIR: the LlamaDeployment whose search in the cluster of KUBECONFIG is exported (as a search)",
    )
    export.add_argument("--namespace", type=namespace, default="default", metavar="NAME", help="its (%(default)s)")
    export.add_argument(
        "--format", choices=("kustomize", "args", "docker", "search"), default="kustomize", help="(%(default)s)"
    )
    export.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="write it there instead of printing it; a search is packed when the name ends in .gz",
    )
    export.add_argument("--deployment", metavar="NAME", help="Deployment that the patch is for (the tuned one's name)")
    export.add_argument("--container", metavar="NAME", help="container that the patch is for (the tuned one's)")
    export.set_defaults(run=_export)


def _add_replay(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    replay = commands.add_parser(
        "replay",
        help="run the search again on the trials of an exported one, without any server",
        description="Run the search code of this version on recorded trials, without any server, and say what its "
        "answer costs beside the recorded one and beside the cheapest that was recorded to keep the promise.",
    )
    replay.add_argument("file", type=Path, metavar="FILE", help="what `slotune export --format search` wrote")
    replay.add_argument(
        "--no-hints",
        action="store_true",
        help="order candidates of equal cost without what was found of trials before, to see what that saves",
    )
    _output(replay)
    replay.set_defaults(run=_replay)


def _add_engine(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    engine = commands.add_parser("engine", help="the embedded llama.cpp, and the model files it needs")
    engine.set_defaults(usage=engine)
    parts = engine.add_subparsers(title="commands", metavar="COMMAND")
    parts.add_parser(
        "serve",
        help="serve a model with the embedded llama.cpp; takes llama-server's own flags",
        add_help=False,
    )
    describe = parts.add_parser("describe", help="say which llama.cpp would run, and its build")
    _engine(describe)
    describe.set_defaults(run=_engine_describe)
    requantize = parts.add_parser(
        "requantize",
        help="make variants of a GGUF file",
        description="Make variants of a GGUF file on this machine. Files that are up to date are not made again.",
    )
    requantize.add_argument("source", type=Path, metavar="SRC", help="GGUF file")
    requantize.add_argument("--to", required=True, metavar="TYPES", help="comma-separated: F16, Q8_0, Q4_0")
    requantize.add_argument("--out", type=Path, required=True, metavar="DIR", help="where the files go")
    requantize.set_defaults(run=_engine_requantize)


def _add_operator(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    operator = commands.add_parser(
        "operator",
        help="tune every LlamaDeployment of a cluster",
        description="Runs inside a cluster (or with KUBECONFIG outside of one) until it is stopped. It watches "
        "LlamaDeployments, measures candidates in sandbox pods and rolls out the answer as spec.rollout says.",
    )
    operator.add_argument(
        "--trial-image", required=True, type=image, metavar="IMAGE", help="slotune's own image, for trials"
    )
    operator.add_argument(
        "--namespace",
        action="append",
        default=[],
        type=namespace,
        metavar="NAME",
        help="watch this namespace only; repeatable (all of them without it)",
    )
    operator.add_argument(
        "--max-trials",
        type=positive,
        default=1,
        metavar="N",
        help="trials at the same time, in all namespaces together (%(default)s)",
    )
    operator.add_argument(
        "--image-pull-policy",
        choices=("IfNotPresent", "Always", "Never"),
        default="IfNotPresent",
        help="of slotune's image in trials (%(default)s)",
    )
    operator.add_argument(
        "--health-port", type=port, default=8080, metavar="PORT", help="/livez, /readyz (%(default)s)"
    )
    operator.add_argument("--metrics-port", type=port, default=9090, metavar="PORT", help="/metrics (%(default)s)")
    operator.add_argument("--log-format", choices=("text", "json"), default="text", help="(%(default)s)")
    operator.set_defaults(run=_operator)


def _add_release(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    release = commands.add_parser(
        "release",
        help="let go of LlamaDeployments when the operator is gone",
        description="For the time after the operator was removed: production gets back what was borrowed from it, and "
        "the finalizer goes, so that LlamaDeployments and their namespaces can be deleted. Stop the operator first.",
    )
    which = release.add_mutually_exclusive_group(required=True)
    which.add_argument("--namespace", type=namespace, metavar="NAME", help="those of this namespace")
    which.add_argument("--all-namespaces", action="store_true", help="all of the cluster")
    release.add_argument("--name", type=object_name, help="only the one of this name")
    release.set_defaults(run=_release)


def _add_crds(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    crds = commands.add_parser(
        "crds",
        help="print the CustomResourceDefinitions that a cluster needs",
        description="Print the CustomResourceDefinitions of this version, ready for kubectl apply --server-side -f -.",
    )
    place = crds.add_mutually_exclusive_group()
    place.add_argument("--out", type=folder, metavar="DIR", help="write one file for each kind there instead")
    place.add_argument("--check", type=folder, metavar="DIR", help="only say where the files there differ")
    crds.set_defaults(run=_crds)


def _add_trial(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    trial = commands.add_parser(
        "trial",
        help="measure the server beside this container; the operator starts it",
        description="The load client of a trial's pod: measures the llama-server on this pod's own address as the "
        "mounted trial says, and reports on standard output. Made for the operator, not for people.",
    )
    trial.add_argument("--directory", type=folder, required=True, metavar="DIR", help="where the trial is mounted")
    trial.add_argument("--port", type=int, default=8080, metavar="N", help="port of the server (%(default)s)")
    trial.add_argument(
        "--summary-bytes", type=int, default=4096, metavar="N", help="size of the termination message (%(default)s)"
    )
    trial.add_argument(
        "--termination-log", type=Path, default=Path("/dev/termination-log"), metavar="FILE", help="(%(default)s)"
    )
    trial.set_defaults(run=_trial)


def _add_survey(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    survey = commands.add_parser(
        "survey",
        help="read model files; the operator starts it",
        description="Read what memory and speed depend on and a digest of mounted GGUF files, and report on "
        "standard output. Made for the operator, not for people.",
    )
    survey.add_argument(
        "--model", action="append", required=True, metavar="NAME=PATH", help="a model variant and its file; repeatable"
    )
    survey.add_argument(
        "--inside-image", action="append", default=[], metavar="NAME", help="a variant that no volume holds; repeatable"
    )
    survey.set_defaults(run=_survey)


def _manifest(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-f",
        "--file",
        action="append",
        required=True,
        type=not_empty,
        metavar="FILE",
        help="manifest with a LlamaDeployment and what it refers to; a folder, or - for standard input; repeatable",
    )
    parser.add_argument("--name", help="the LlamaDeployment to take when there are several")


def _models(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--models-dir",
        type=Path,
        metavar="DIR",
        help="folder with the weights files (by default where the pod would find them: hostPath volumes, or the path)",
    )


def _engine(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--engine",
        default="auto",
        metavar="auto|embedded|PATH",
        help="which llama.cpp runs the candidates: a llama-server on PATH if there is one (auto), the embedded one, "
        "or a binary (%(default)s)",
    )


def _output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o", "--output", choices=("table", "json", "yaml"), default="table", help="what is printed (%(default)s)"
    )


def _tune(args: argparse.Namespace) -> int:
    from slotune.commands.tune import tune

    return tune(
        args.file,
        args.name,
        models_dir=args.models_dir,
        engine_choice=args.engine,
        gpu_class=args.gpu_class,
        out=args.out,
        output=args.output,
    )


def _plan(args: argparse.Namespace) -> int:
    from slotune.commands.plan import plan

    return plan(args.file, args.name, args.models_dir, args.output)


def _bench(args: argparse.Namespace) -> int:
    from slotune.commands.bench import bench

    return bench(
        args.file,
        args.name,
        url=args.url,
        replicas=args.replicas,
        api_key_file=args.api_key_file,
        output=args.output,
    )


def _diagnose(args: argparse.Namespace) -> int:
    from slotune.commands.diagnose import Asked, diagnose, only_one

    if args.explain is not None:
        from slotune.commands.diagnose_explain import explain
        from slotune.tuning.errors import InvalidInputError

        for flag, given in (("--url", args.url), ("--log", args.log), ("--deployment", args.deployment)):
            if given is not None:
                raise InvalidInputError(
                    f"{flag} beside --explain", None, "one looks, the other only prints: leave one out"
                )
        return explain(args.explain, args.output)
    asked = Asked(
        url=args.url,
        log=only_one("--log", args.log),
        deployment=args.deployment,
        namespace=args.namespace,
        container=args.container,
        context=args.context,
        kubeconfig=args.kubeconfig,
        watch=args.watch,
        probe=args.probe,
        api_key_file=args.api_key_file,
        nvidia_smi=args.nvidia_smi,
        proc=args.proc,
        model=args.model,
        files=tuple(args.file or ()),
        name=args.name,
        gpu_class=args.gpu_class,
        bandwidth=args.bandwidth,
        price_per_hour=args.price_per_hour,
        everything=args.all,
    )
    if asked.deployment is None:
        return diagnose(asked, args.output)
    try:
        from slotune.commands.diagnose_deployment import diagnose_deployment
    except ModuleNotFoundError as error:
        from slotune.tuning.errors import InvalidInputError

        cure = f"it takes the extra operator ({error.name} is not installed): pip install 'slotune[operator]'"
        raise InvalidInputError("--deployment", asked.deployment, cure) from error
    return diagnose_deployment(asked, args.output)


def _validate(args: argparse.Namespace) -> int:
    from slotune.commands.validate import validate

    return validate(args.file, args.name)


def _export(args: argparse.Namespace) -> int:
    from slotune.commands.export import export

    return export(
        args.directory,
        args.format,
        args.deployment,
        args.container,
        args.out,
        llama_deployment=args.llama_deployment,
        namespace=args.namespace,
    )


def _replay(args: argparse.Namespace) -> int:
    from slotune.commands.replay import replay

    return replay(args.file, args.output, hinted=not args.no_hints)


def _trial(args: argparse.Namespace) -> int:
    from slotune.commands.trial import trial

    return trial(args.directory, port=args.port, summary_bytes=args.summary_bytes, termination_log=args.termination_log)


def _survey(args: argparse.Namespace) -> int:
    from slotune.commands.survey import survey

    return survey(args.model, args.inside_image)


def _engine_serve(arguments: list[str]) -> int:
    from slotune.llama.engine import serve

    return serve(arguments)


def _engine_describe(args: argparse.Namespace) -> int:
    from slotune.commands.engine import describe

    return describe(args.engine)


def _engine_requantize(args: argparse.Namespace) -> int:
    from slotune.commands.engine import requantize_all

    return requantize_all(args.source, args.to, args.out)


def _operator(args: argparse.Namespace) -> int:
    from slotune.commands.run_operator import run

    return run(
        trial_image=args.trial_image,
        namespaces=args.namespace,
        max_trials=args.max_trials,
        pull_policy=args.image_pull_policy,
        health_port=args.health_port,
        metrics_port=args.metrics_port,
        log_format=args.log_format,
    )


def _release(args: argparse.Namespace) -> int:
    from slotune.commands.release import release

    return release(args.namespace, args.name)


def _crds(args: argparse.Namespace) -> int:
    from slotune.commands.crds import check_crds, print_crds, write_crds

    if args.check is not None:
        return check_crds(args.check)
    return print_crds() if args.out is None else write_crds(args.out)


if __name__ == "__main__":
    sys.exit(main())
