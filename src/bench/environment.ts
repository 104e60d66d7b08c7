/** Origin of a figure: machine, versions and commit, without paths and user names. */
import { spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { arch, availableParallelism, cpus, platform, totalmem } from "node:os";
import { fileURLToPath } from "node:url";
import { assertArgument, hasFields } from "../algorithms/arguments.ts";

/** The machine that ran a benchmark. */
export interface Machine {
  readonly cpu: string;
  readonly cores: number;
  readonly memory_bytes: number;
  readonly platform: string;
  readonly arch: string;
}

/** The facts that a figure needs. */
export interface Environment {
  readonly machine: Machine;
  readonly versions: { readonly node: string; readonly v8: string; readonly twinccl: string };
  /** Commit of the checkout, with `-dirty` after changes; `null` for an installed package. */
  readonly commit: string | null;
}

/** Facts of this machine and checkout. `TWINCCL_COMMIT` names the commit on machines without git. */
export function environment(): Environment {
  const root = fileURLToPath(new URL("../../", import.meta.url));
  const manifest = JSON.parse(readFileSync(`${root}package.json`, "utf8")) as { version: string };
  return {
    machine: {
      cpu: cpus()[0]?.model.trim() ?? "unknown",
      cores: availableParallelism(),
      memory_bytes: totalmem(),
      platform: platform(),
      arch: arch(),
    },
    versions: {
      node: process.versions.node,
      v8: process.versions.v8,
      twinccl: manifest.version,
    },
    commit: commitOf(root),
  };
}

/**
 * The environment on one line.
 *
 * @throws InvalidArgumentError for what is no environment.
 */
export function environmentText(facts: Environment): string {
  const isWhole =
    hasFields(facts, { machine: "object", versions: "object" }) &&
    hasFields(facts.machine, { cpu: "string", cores: "number", memory_bytes: "number" });
  assertArgument(isWhole, "environmentText", "facts", facts, "the facts of environment()");
  const { machine, versions, commit } = facts;
  const gibibytes = (machine.memory_bytes / 2 ** 30).toFixed(0);
  return [
    `${machine.cpu}, ${machine.cores} cores, ${gibibytes} GiB`,
    `node ${versions.node}`,
    `twinccl ${versions.twinccl}`,
    `commit ${commit ?? "unknown"}`,
  ].join("; ");
}

function commitOf(root: string): string | null {
  const named = process.env["TWINCCL_COMMIT"];
  if (named !== undefined && named !== "") return named;
  // An installed package may lie inside the checkout of another project, with a commit of its own.
  if (!existsSync(`${root}.git`)) return null;
  const commit = git(root, "rev-parse", "--verify", "--quiet", "HEAD");
  if (commit === undefined || commit === "") return null;
  return git(root, "status", "--porcelain") === "" ? commit : `${commit}-dirty`;
}

function git(cwd: string, ...args: readonly string[]): string | undefined {
  const { status, stdout } = spawnSync("git", args, { cwd, encoding: "utf8", timeout: 5000 });
  return status === 0 ? stdout.trim() : undefined;
}
