/**
 * The cost of a job's small store: round trips between processes over loopback TCP, over TLS. The
 * store and each rank are processes of their own.
 */
import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { type Figure, report } from "./support/report.ts";

/** The modules of the job layer that are measured. */
interface Modules {
  readonly server: typeof import("../src/job/server.ts");
  readonly "tcp-rendezvous": typeof import("../src/job/tcp-rendezvous.ts");
}

/** The built file of a module: the job layer is no entry of the package. */
const built = (name: keyof Modules): string =>
  new URL(`../dist/job/${name}.js`, import.meta.url).href;

const { StoreServer } = (await import(built("server"))) as Modules["server"];

const rounds = 2_000;
const id = 128;
const value = 4_096;

/** The program of every rank; rank 0 prints the times of each round in nanoseconds, a line of JSON each. */
const program = `
  const { tcpRendezvous } = await import("${built("tcp-rendezvous")}");
  const [port, size, rank] = process.argv.slice(-3).map(Number);
  const there = tcpRendezvous({ port, secret: process.env.TWINCCL_SECRET, host: "other" });
  const member = await there.join({ jobId: "bench", rank, size });
  const measure = async (name, round) => {
    const times = [];
    for (let at = 0; at < ${rounds}; at += 1) {
      const began = process.hrtime.bigint();
      await round(at);
      times.push(Number(process.hrtime.bigint() - began));
    }
    if (rank === 0) console.log(JSON.stringify({ name, times }));
    await member.exchange("between", new Uint8Array());
  };
  const small = new Uint8Array(${id});
  const large = new Uint8Array(${value});
  if (size === 1) {
    await member.set("id", small);
    await measure("get, ${id} B", () => member.get("id"));
    await measure("set, ${id} B", (at) => member.set("key " + at, small));
    await measure("get, ${value} B", (at) => (at === 0 ? member.set("v", large) : member.get("v")));
  }
  await measure("exchange among " + size + ", ${id} B each", () => member.exchange("k", small));
  await member.leave();
`;

async function measure(size: number): Promise<Figure[]> {
  const secret = randomBytes(32).toString("hex");
  const server = await StoreServer.listen({ jobId: "bench", size, hosted: false, secret });
  const ranks = Array.from({ length: size }, (_, rank) => {
    const words = [server.port, size, rank].map(String);
    const child = spawn(process.execPath, ["--input-type=module", "-e", program, "--", ...words], {
      env: { ...process.env, TWINCCL_SECRET: secret },
      stdio: ["ignore", "pipe", "inherit"],
    });
    let out = "";
    child.stdout.on("data", (chunk) => {
      out += chunk;
    });
    return once(child, "close").then(([status]) => {
      if (status !== 0) throw new Error(`rank ${rank} of ${size} ended with status ${status}`);
      return out;
    });
  });
  const [first = ""] = await Promise.all(ranks);
  await server.close();
  return first.trim().split("\n").flatMap(figuresOf);
}

function figuresOf(line: string): Figure[] {
  const { name, times } = JSON.parse(line) as { name: string; times: number[] };
  // The first rounds warm the code up.
  const sorted = times.slice(200).sort((a, b) => a - b);
  const at = (part: number): number =>
    (sorted[Math.floor(part * (sorted.length - 1))] ?? 0) / 1_000;
  const figure = (what: string, part: number): Figure => ({
    ...{ name: `${name}, ${what}`, unit: "µs", value: at(part), goal: 1_000 },
    ...{ least: at(0), most: at(1), samples: sorted.length },
  });
  return [figure("median", 0.5), figure("p99", 0.99)];
}

const figures: Figure[] = [];
for (const size of [1, 2, 8]) figures.push(...(await measure(size)));
report("rendezvous", figures);
