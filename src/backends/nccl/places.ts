/** Where the ranks of a world work: a GPU each, and on it a stream, of the caller or of our own. */
import { InvalidArgumentError, type OpenRequest } from "../../api/index.ts";
import { invalid, textOf } from "../../api/option-kinds.ts";
import type { Place } from "./device/device.ts";
import type { NcclOptions } from "./options.ts";
import { NcclSession } from "./session.ts";

/** CUDA's default streams by handle: they wait for other streams, and cannot be captured. */
const defaultStreams: readonly bigint[] = [0n, 1n, 2n];

/**
 * A place for every rank: as the options say, or GPU r for rank r. In a world that replaces another the survivors keep
 * theirs.
 *
 * @throws InvalidArgumentError for options that name another number of places than there are ranks.
 */
export function placesFor(options: NcclOptions, { size, rebuilt }: OpenRequest): readonly Place[] {
  if (rebuilt?.session instanceof NcclSession) {
    const { session, ranks } = rebuilt;
    return ranks.map((rank) => session.place(rank));
  }
  const { devices = Array.from({ length: size }, (_, rank) => rank) } = options;
  assertLength("devices", devices, size);
  const streams = streamsOf(options);
  if (streams !== undefined) assertLength("streams", streams, size);
  return devices.map((device, rank) => ({ device, stream: streams?.[rank] }));
}

/** The caller's streams, by rank of this process. */
export function streamsOf({ stream, streams }: NcclOptions): readonly bigint[] | undefined {
  return stream === undefined ? streams : [stream];
}

/** Refuses what are no streams of the caller: none, one twice, or a default stream of CUDA. */
export function assertStreams(options: NcclOptions): void {
  const field = options.stream === undefined ? "streams" : "stream";
  const fault = (found: string, needed: string, hint?: string): InvalidArgumentError =>
    invalid("nccl", field, found, needed, hint);
  const handles =
    field === "stream"
      ? "the handle of a CUDA stream, as a bigint"
      : "handles of CUDA streams, as bigints";
  if (options.stream !== undefined && options.streams !== undefined) {
    throw fault("stream and streams", "one of them", "stream: s is short for streams: [s]");
  }
  const streams: unknown = streamsOf(options);
  if (streams === undefined) return;
  if (!Array.isArray(streams)) throw fault(textOf(streams), handles);
  if (streams.length === 0) throw fault("none", handles);
  const seen = new Set<bigint>();
  for (const stream of streams as readonly unknown[]) {
    if (typeof stream !== "bigint" || stream < 0n) throw fault(textOf(stream), handles);
    if (defaultStreams.includes(stream)) {
      throw fault(
        `the default stream ${stream}`,
        "one of the caller's own",
        "make it with cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)",
      );
    }
    if (seen.has(stream)) throw fault(`${stream} twice`, "one for every rank");
    seen.add(stream);
  }
}

function assertLength(field: "devices" | "streams", given: readonly unknown[], size: number): void {
  if (given.length === size) return;
  throw new InvalidArgumentError(
    {
      headline: `nccl: ${field}: found ${given.length}, a world of ${size} ranks needs ${size}`,
    },
    { field, size },
  );
}
