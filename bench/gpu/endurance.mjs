// What has no peer: memory that stays behind, processes that end without closing, and the rendezvous.
import { spawn } from "node:child_process";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { reasonIn } from "./reason.mjs";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));

/** Runs Node and resolves to what came of it. */
function node(args, { env, timeoutMs }) {
  return new Promise((resolve) => {
    const child = spawn(process.execPath, args, {
      stdio: ["ignore", "pipe", "pipe"],
      env: { ...process.env, NCCL_NVLS_ENABLE: "0", ...env },
    });
    let [stdout, stderr] = ["", ""];
    child.stdout.on("data", (chunk) => {
      stdout += chunk;
    });
    child.stderr.on("data", (chunk) => {
      stderr = (stderr + chunk).slice(-2000);
    });
    const timer = setTimeout(() => child.kill("SIGKILL"), timeoutMs);
    child.once("close", (code, signal) => {
      clearTimeout(timer);
      resolve({ how: signal ?? `status ${code}`, stdout, stderr });
    });
  });
}

const lastLine = (text) => text.trim().split("\n").at(-1) ?? "";

/** Opening, using and closing a world of two GPUs, or of one where there is no second. */
export async function cycles({ size, cycles: wanted, seconds, libraries, env }) {
  const args = ["--expose-gc", here("cycles.mjs"), size, wanted, seconds, libraries.cudart ?? ""];
  const { how, stdout, stderr } = await node(args.map(String), {
    env,
    timeoutMs: (seconds + 30) * 1000,
  });
  if (how !== "status 0") return { not_run: `${how}: ${reasonIn(stderr)}` };
  return JSON.parse(lastLine(stdout));
}

/** The status with which each way of ending should end. */
const wantedStatus = { return: "status 0", exit: "status 0", throw: "status 1" };

/** Processes that end without closing: how many ended in which way, and which of them did not as they should. */
export async function ends({ size, processes, env }) {
  const ways = Object.keys(wantedStatus);
  const found = {};
  const bad = [];
  const one = async (way) => {
    const { how, stdout, stderr } = await node([here("ends.mjs"), `${size}`, way], {
      env,
      timeoutMs: 60_000,
    });
    const key = `${way}: ${how}`;
    found[key] = (found[key] ?? 0) + 1;
    if (how === wantedStatus[way] && stdout.includes("used")) return;
    bad.push(`${key}${stderr === "" ? "" : `: ${reasonIn(stderr)}`}`);
  };
  for (let at = 0; at < processes; at += 4) {
    const many = Array.from({ length: Math.min(4, processes - at) }, (_, next) => at + next);
    await Promise.all(many.map((each) => one(ways[each % ways.length])));
  }
  return { processes, size, ends: found, bad };
}

/** The figures of bench/rendezvous.bench.ts, which vite can run where there is no TypeScript compiler. */
export async function rendezvous({ folder, seconds }) {
  const bench = here("../rendezvous.bench.ts");
  const program = `
    const { runnerImport } = await import("vite");
    await runnerImport(${JSON.stringify(bench)}, { configFile: false, logLevel: "error" });
  `;
  const out = join(folder, "rendezvous.json");
  const args = ["--input-type=module", "-e", program, "--", "--out", out];
  const { how, stdout, stderr } = await node(args, { env: {}, timeoutMs: seconds * 1000 });
  if (how !== "status 0") return { not_run: `${how}: ${reasonIn(stderr)}`, out: undefined };
  return { text: stdout, out };
}
