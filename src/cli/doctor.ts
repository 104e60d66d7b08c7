/** `twinccl doctor`: what this machine offers, and which backends could be used. */
import { CommError } from "../api/index.ts";
import { environment } from "../bench/index.ts";
import type { Command, Context } from "./context.ts";
import { parseOptions } from "./options.ts";

/** The `doctor` command. */
export const doctorCommand: Command = {
  name: "doctor",
  summary: "show what this machine offers and which backends can be used",
  help: `Usage: twinccl doctor

Shows versions, processor, memory, and for each backend whether it can be used here and why not.
Example:
  twinccl doctor

Exit status: 0.
`,
  run: runDoctor,
};

async function runDoctor(args: readonly string[], context: Context): Promise<number> {
  parseOptions(args, {}, 0);
  const { machine, versions, commit } = environment();
  const lines: [string, string][] = [
    ["twinccl", `${versions.twinccl}, commit ${commit ?? "unknown"}`],
    ["node", `${versions.node} (V8 ${versions.v8})`],
    ["platform", `${machine.platform} ${machine.arch}`],
    ["processor", `${machine.cpu}, ${machine.cores} cores`],
    ["memory", `${(machine.memory_bytes / 2 ** 30).toFixed(1)} GiB`],
    ["wasm SIMD", hasWasmSimd() ? "yes" : "no"],
  ];
  for (const name of Object.keys(context.backends)) {
    lines.push([`backend ${name}`, await backendState(name, context)]);
  }
  for (const [name, value] of lines) context.out(`${name.padEnd(13)} ${value}\n`);
  return 0;
}

async function backendState(name: string, { backends }: Context): Promise<string> {
  try {
    const backend = backends[name]?.({});
    const probe = await backend?.probe({ size: 1, name: "doctor" });
    return `${probe?.ok === true ? "yes" : "no"}: ${probe?.reason ?? "unknown"}`;
  } catch (error) {
    if (!(error instanceof CommError)) throw error;
    return `no: ${error.message.split("\n")[0]?.replace(`backend ${name}: `, "")}`;
  }
}

/** The smallest module with a SIMD instruction: a function that splats a constant and drops it. */
const simdModule = Uint8Array.of(
  ...[0, 0x61, 0x73, 0x6d, 1, 0, 0, 0], // magic, version
  ...[1, 4, 1, 0x60, 0, 0], // type 0: no parameters, no results
  ...[3, 2, 1, 0], // one function of type 0
  ...[10, 9, 1, 7, 0, 0x41, 0, 0xfd, 0x0f, 0x1a, 0x0b], // i32.const 0, i8x16.splat, drop, end
);

function hasWasmSimd(): boolean {
  const { WebAssembly } = globalThis as {
    WebAssembly?: { validate(bytes: Uint8Array): boolean };
  };
  return WebAssembly?.validate(simdModule) === true;
}
