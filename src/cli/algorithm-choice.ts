/** `--algorithm`: a name of the catalogue for the collective of the command. */
import { algorithmsOf, builtCollectives } from "../algorithms/index.ts";
import type { CollectiveName } from "../api/index.ts";
import { UsageError } from "./context.ts";
import { oneOf } from "./options.ts";

/** The choice of algorithm for a backend; empty when none was named. `option` is the one that named it. */
export function algorithmChoice(
  collective: CollectiveName,
  name: string | undefined,
  option = "--algorithm",
): Readonly<Record<string, string>> {
  if (name === undefined) return {};
  const built = builtCollectives.find((each) => each === collective);
  if (built === undefined) throw new UsageError(`${option}: ${collective} has none to choose`);
  const names = algorithmsOf(built).map((algorithm) => algorithm.name);
  return { [collective]: oneOf(option, name, names) };
}
