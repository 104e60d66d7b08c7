/** Sends and receives that have come to the head of their ranks' lines. */
import { takeHalves, takeMeetings } from "./batch.ts";
import type { Lines } from "./lines.ts";
import { type ServeHost, serveMeetings } from "./serve.ts";

/** Serves those that meet, and halves whose other end is elsewhere. `undefined`: there are none; true: served. */
export function serveTransfers(host: ServeHost, lines: Lines): true | Promise<void> | undefined {
  if (!lines.haveTransfers) return undefined;
  const batches = lines.batches();
  for (const batch of batches) {
    // A cancelled transfer no longer meets anyone.
    if (batch !== undefined) batch.open = batch.open.filter(({ op }) => op.pending);
  }
  const halves = takeHalves(host.comm, batches);
  const meetings = takeMeetings(batches);
  const leave = (): boolean[] =>
    batches.map((batch, rank) => {
      const done = batch?.open.length === 0 && lines.head(rank) === batch;
      if (done) lines.leave(rank);
      return done;
    });
  if (meetings.length + halves.length === 0) return leave().includes(true) ? true : undefined;
  const served = serveMeetings(host, meetings, halves, batches);
  if (served instanceof Promise) return served.then(() => void leave());
  leave();
  return true;
}
