/** The built native helper, where there is a C compiler and a machine that it is built for. */
import { type Helper, helper } from "../../../../../src/backends/nccl/sys/helper.ts";
import { compiler } from "../../../../support/c-library.ts";

const isBuiltHere = process.platform === "linux" && ["x64", "arm64"].includes(process.arch);
const why =
  "missing" in compiler
    ? compiler.missing
    : isBuiltHere
      ? undefined
      : "needs Linux on x64 or arm64";

/** Behind titles of tests: why they are skipped, or nothing. */
export const reason = why === undefined ? "" : ` (skipped: ${why})`;

/** The helper that a build has put in its place. */
export async function builtHelper(): Promise<Helper> {
  const found = await helper({});
  if (typeof found === "string") throw new Error(found);
  return found;
}
