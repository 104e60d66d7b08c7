/** Options by name: one that nobody has is a slip of the pen, and would be ignored in silence. */
import { type CommErrorFacts, InvalidArgumentError } from "./errors.ts";

/** The names of some options, all of them: one that is left out does not compile. */
export type OptionNames<Options extends object> = Readonly<Record<keyof Options, true>>;

/**
 * Refuses what is no object, and names that are none of these.
 *
 * @throws InvalidArgumentError whose `field` is the name that is not known, behind the `path` of options that are an option
 * themselves; other facts are put into it as they are.
 * @example
 * assertOptionNames("sim", options, { seed: true, strict: true });
 */
export function assertOptionNames<Options extends object>(
  subject: string,
  options: Options,
  names: OptionNames<Options>,
  { path, ...facts }: Partial<CommErrorFacts> & { readonly path?: string } = {},
): void {
  if (typeof options !== "object" || options === null) {
    const found = options === null ? "null" : typeof options;
    throw new InvalidArgumentError(
      {
        headline: `${subject}: ${path ?? "options"}: found ${found}, needs one object with named fields`,
      },
      { ...facts, field: path ?? "options" },
    );
  }
  for (const name in options) {
    if (Object.hasOwn(names, name)) continue;
    const field = path === undefined ? name : `${path}.${name}`;
    throw new InvalidArgumentError(
      {
        headline: `${subject}: ${field}: it is not known here, needs one of ${Object.keys(names).join(", ")}`,
      },
      { ...facts, field },
    );
  }
}
