/** Checks the arguments of `predict`: a wrong number would silently give a wrong time, or none. */
import { specifications } from "../../api/collectives/index.ts";
import { assertOptions, invalid, type OptionKinds, textOf } from "../../api/option-kinds.ts";
import { algorithmsOf } from "../catalogue.ts";
import type { PredictedCall } from "./predict.ts";

const kinds: OptionKinds<PredictedCall> = {
  ...{ collective: true, algorithm: "object", ranks: true, root: true, count: true },
  ...{ bytesPerElement: true, link: "object", overheadPs: true, topology: "object" },
  ...{ hopLatencyPs: true, credits: true, onProgress: "function" },
};

/** Limit of times of a link, in picoseconds: sums of times must stay exact integers. */
const mostPs = 1e15;

/** @throws InvalidArgumentError that names the first invalid field. */
export function assertPredictable(call: PredictedCall): void {
  assertOptions("predict", call, kinds);
  const { collective, ranks, root = 0, count, bytesPerElement, credits = 1 } = call;
  if (!Object.hasOwn(specifications, collective)) {
    throw invalid(
      "predict",
      "collective",
      textOf(collective),
      `one of ${Object.keys(specifications).join(", ")}`,
    );
  }
  whole("ranks", ranks, 1);
  if (specifications[collective].rooted) whole("root", root, 0, ranks - 1);
  whole("count", count, 0);
  whole("bytesPerElement", bytesPerElement, 1);
  whole("credits", credits, 1);
  assertOptions(
    "predict",
    call.link,
    { latencyPs: true, gigabytesPerSecond: true },
    { path: "link" },
  );
  time("link.latencyPs", call.link.latencyPs);
  const { gigabytesPerSecond } = call.link;
  if (!(gigabytesPerSecond > 0 && gigabytesPerSecond < Infinity)) {
    throw invalid(
      "predict",
      "link.gigabytesPerSecond",
      textOf(gigabytesPerSecond),
      "a number above 0",
    );
  }
  time("overheadPs", call.overheadPs ?? 0);
  time("hopLatencyPs", call.hopLatencyPs ?? 0);
  assertAlgorithm(call);
  const { topology } = call;
  if (topology !== undefined && topology.ranks !== ranks) {
    throw invalid(
      "predict",
      "topology",
      `one of ${topology.ranks} ranks`,
      `one of ${ranks}, as ranks says`,
    );
  }
}

/** Rejects an algorithm that the catalogue has for another collective; an algorithm of the caller is not checked. */
function assertAlgorithm({ collective, algorithm }: PredictedCall): void {
  const own = algorithmsOf(collective);
  if (own.includes(algorithm)) return;
  const names = own.map(({ name }) => name).join(", ");
  if (typeof algorithm?.chunksPerBlock !== "function") {
    throw invalid(
      "predict",
      "algorithm",
      textOf(algorithm),
      `an algorithm, such as those of the catalogue: ${names}`,
    );
  }
  const others = Object.keys(specifications) as PredictedCall["collective"][];
  const of = others.find((other) => algorithmsOf(other).includes(algorithm));
  if (of !== undefined) {
    throw invalid(
      "predict",
      "algorithm",
      `${algorithm.name} of ${of}`,
      `one of ${collective}: ${names}`,
    );
  }
}

function whole(field: string, found: unknown, least: number, most = Number.MAX_SAFE_INTEGER): void {
  if (Number.isSafeInteger(found) && Number(found) >= least && Number(found) <= most) return;
  const above = most < Number.MAX_SAFE_INTEGER ? `in ${least}..${most}` : `of at least ${least}`;
  throw invalid("predict", field, textOf(found), `a whole number ${above}`);
}

function time(field: string, found: unknown): void {
  if (Number.isSafeInteger(found) && Number(found) >= 0 && Number(found) <= mostPs) return;
  throw invalid("predict", field, textOf(found), `whole picoseconds from 0 to ${mostPs}`);
}
