/** Where to meet, given what the launcher said. */
import { createHash } from "node:crypto";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { InvalidArgumentError } from "../../../api/index.ts";
import { fileRendezvous } from "./file.ts";
import type { LauncherEnvironment } from "./launcher-environment.ts";
import type { Rendezvous } from "./rendezvous.ts";
import { tcpRendezvous } from "./tcp.ts";

/**
 * The rendezvous for a process that a launcher started: the launcher's own store; else `TWINCCL_RENDEZVOUS_FILE`; else,
 * when all ranks are on this machine and neither address, port nor secret were chosen, a file in this user's own
 * folder among the temporary files; else TCP at the launcher's address, hosted by rank 0.
 *
 * @throws InvalidArgumentError when the address or the port is missing.
 */
export function rendezvousFor(environment: LauncherEnvironment): Rendezvous {
  const { address, port, secret, storeHost, file, jobId, localSize, size } = environment;
  if (storeHost === "launcher") {
    return tcpRendezvous({
      address,
      port: port ?? missing(environment, "port"),
      secret,
      host: "other",
    });
  }
  if (file !== undefined) return fileRendezvous({ path: file, address: ownAddress(environment) });
  if (localSize === size && !environment.isNetworkChosen) {
    const user = process.getuid?.() ?? "user";
    const hash = createHash("sha256").update(jobId).digest("hex").slice(0, 16);
    const path = join(tmpdir(), `twinccl-${user}`, `${hash}.rendezvous`);
    return fileRendezvous({ path, isFolderOwn: true });
  }
  return tcpRendezvous({
    address: address ?? missing(environment, "address"),
    port: port ?? missing(environment, "port"),
    secret,
  });
}

/** With a file, only an address that was chosen for it counts: the file says the rest. */
function ownAddress({ address, isNetworkChosen, localSize, size }: LauncherEnvironment) {
  return isNetworkChosen || localSize !== size ? address : undefined;
}

function missing({ family }: LauncherEnvironment, what: "address" | "port"): never {
  const name = `TWINCCL_${what.toUpperCase()}`;
  throw new InvalidArgumentError(
    {
      headline: `rendezvous: ${family} gives no ${what}, and ${name} is not set`,
      hint: `set ${name} to the same on every rank, or TWINCCL_RENDEZVOUS_FILE to a file that all of them see`,
    },
    { field: name },
  );
}
