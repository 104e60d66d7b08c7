/** A port of this machine that a test may listen on later. */
import { randomInt } from "node:crypto";
import { createServer } from "node:net";

const listens = (port: number): Promise<boolean> =>
  new Promise((resolve) => {
    const server = createServer();
    server.once("error", () => resolve(false));
    server.listen(port, "127.0.0.1", () => server.close(() => resolve(true)));
  });

/** A free port below the range that the system gives out by itself, so that no other listener or connection gets it meanwhile. */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = randomInt(10_000, 32_768);
    if (await listens(port)) return port;
  }
}
