/**
 * A connection beside the one on which a rank and the store speak: it carries no messages, so that the system notices when the
 * machine at its other end is gone.
 *
 * TCP's keepalive probes the other machine, not its process: the kernel answers for a process that computes without returning
 * to its event loop, or is stopped, however long that lasts. But it probes only an idle connection. Data that was written to a
 * machine that is gone stays under way, and is sent again and again for a quarter of an hour before the system gives up.
 */
import type { FramedSocket } from "./framed-socket.ts";
import { WireError } from "./wire.ts";

/** Longest time for the speaking connection to report its own end, which has more details. */
const ownEndMs = 1_000;

/** From now on the end of the silent connection is that of the spoken one too, and the other way round. */
export function standBeside(silent: FramedSocket, spoken: FramedSocket): void {
  silent.socket.unref();
  silent.listener = {
    frame: () => {
      throw new WireError("a frame where nothing is to be said");
    },
    ended: (reason) => {
      // After a standstill of this process what has come is read first.
      setTimeout(() => setImmediate(() => spoken.end(reason)), ownEndMs).unref();
    },
  };
  if (spoken.socket.destroyed) silent.destroy();
  else spoken.socket.once("close", () => silent.destroy());
}
