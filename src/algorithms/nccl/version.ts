/**
 * Which NCCL is meant. Its rules changed between versions, and a rule for one of them is no guess about another.
 *
 * Everything in this folder was read from 2.28.9 and checked against results recorded with it, so that is the one
 * version it knows; `2.28` is short for it. Later versions cut the range differently from 2.29.2 on.
 */
import { UnsupportedError } from "../../api/errors.ts";

/** Names under which the known version goes. */
export const ncclVersions = ["2.28", "2.28.9"] as const;

/** The part of a version's rules that is known to differ between versions. */
export interface VersionRules {
  readonly version: string;
  /** Bytes of traffic that make a channel worthwhile; 32 KiB from 2.29.2 on. */
  readonly minimumTraffic: number;
}

const rules28: VersionRules = { version: "2.28.9", minimumTraffic: 16_384 };

/** The rules of a version; one that is not known is refused. */
export function rulesOf(version: string): VersionRules {
  if ((ncclVersions as readonly string[]).includes(version)) return rules28;
  throw new UnsupportedError(
    {
      headline: `the plan of NCCL ${version}: its rules are not known here`,
      hint: `known versions: ${ncclVersions.join(", ")}; plans of other versions are not guessed`,
    },
    { field: "version" },
  );
}
