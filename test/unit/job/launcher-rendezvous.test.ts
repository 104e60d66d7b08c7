/** The rendezvous that the variables of a launcher lead to. */
import { tmpdir } from "node:os";
import { describe, expect, test } from "vitest";
import { type LauncherEnvironment, launcherEnvironment } from "../../../src/api/world/launchers.ts";
import { joinLaunched, rendezvousFor } from "../../../src/job/launcher-rendezvous.ts";
import type { Membership } from "../../../src/job/rendezvous.ts";
import { tcpRendezvous } from "../../../src/job/tcp-rendezvous.ts";
import { openmpi, torchrun, twinccl, type Variables } from "../../support/launcher-variables.ts";
import { errorOf, place, relay } from "./stores.ts";

const read = (env: Variables) => launcherEnvironment(env) as LauncherEnvironment;

describe("the rendezvous", () => {
  test("of the launcher's store", () => {
    expect(rendezvousFor(read(twinccl)).address).toBe("127.0.0.1:4711");
    const file = { ...twinccl, TWINCCL_RENDEZVOUS_FILE: "/f" };
    expect(rendezvousFor(read(file)).address).toBe("127.0.0.1:4711");
  });

  test("of a named file", () => {
    const env = { ...torchrun, TWINCCL_RENDEZVOUS_FILE: "/some/file" };
    expect(rendezvousFor(read(env)).address).toBe("/some/file");
  });

  test("of a file of the job, when all ranks are on this machine", () => {
    const { address } = rendezvousFor(read(openmpi));
    expect(address.startsWith(`${tmpdir()}/twinccl-${process.getuid?.()}/`)).toBe(true);
    const other = rendezvousFor(read({ ...openmpi, PMIX_NAMESPACE: "ns.2" }));
    expect(other.address).not.toBe(address);
  });

  test("by TCP, when ranks are on several machines or the network was chosen", () => {
    expect(rendezvousFor(read(torchrun)).address).toBe("gpu1:29501");
    const env = { ...openmpi, TWINCCL_ADDRESS: "::1", TWINCCL_PORT: "4000" };
    expect(rendezvousFor(read(env)).address).toBe("[::1]:4000");
  });

  test("a missing address is named", async () => {
    const env = { ...openmpi, OMPI_COMM_WORLD_LOCAL_SIZE: undefined };
    const error = await errorOf((async () => rendezvousFor(read(env)))());
    expect(error).toMatchObject({ code: "ERR_COMM_ARG", field: "TWINCCL_ADDRESS" });
    expect(error.message).toContain("Open MPI gives no address, and TWINCCL_ADDRESS is not set");
  });
});

/** A job of one rank, which meets in a file. */
const alone: Variables = {
  ...{ OMPI_COMM_WORLD_RANK: "0", OMPI_COMM_WORLD_LOCAL_RANK: "0" },
  ...{ OMPI_COMM_WORLD_SIZE: "1", OMPI_COMM_WORLD_LOCAL_SIZE: "1" },
};
const request = { name: "world", size: 1, timeoutMs: 20_000, signal: undefined };

/** A backend that needs nothing. */
const opening = <T>(open: (membership: Membership) => Promise<T>) => ({
  ...{ name: "test", find: () => Promise.resolve(), open },
});

test("a job id is kept within bounds, and apart from others", async () => {
  const jobIdOf = (end: string): Promise<string> => {
    const environment = read({ ...alone, PMIX_NAMESPACE: `${"ü".repeat(200)}${end}` });
    return joinLaunched(
      environment,
      request,
      opening(async (membership) => {
        await membership.leave();
        return membership.jobId;
      }),
    );
  };
  const ids = [await jobIdOf("a"), await jobIdOf("b")];
  for (const id of ids) expect(Buffer.byteLength(id)).toBeLessThanOrEqual(128);
  expect(new Set(ids).size).toBe(2);
});

describe("where the job does not form, connect", () => {
  const size = 2;
  /** Joins a job of two ranks at the launcher's store as rank 0; rank 1 does nothing. */
  const joining = async (signal?: AbortSignal) => {
    const at = await place(size);
    const environment = read({
      ...{ ...twinccl, TWINCCL_RANK: "0", TWINCCL_SIZE: "2", TWINCCL_JOB_ID: at.jobId },
      ...{ TWINCCL_LOCAL_RANK: "0", TWINCCL_LOCAL_SIZE: "2" },
      ...{ TWINCCL_PORT: String(at.server.port), TWINCCL_SECRET: at.secret },
    });
    const { port, cut } = await relay(at.server.port);
    const far = tcpRendezvous({ port, secret: at.secret, host: "other" });
    const other = far.join({ jobId: at.jobId, rank: 1, size });
    const asked = { ...request, size, signal };
    const joined = joinLaunched(
      environment,
      asked,
      opening(() => Promise.resolve()),
    );
    return { joined, other: { member: await other, cut } };
  };

  test("names the rank that was lost, and nothing to rebuild", async () => {
    const { joined, other } = await joining();
    other.cut();
    const error = await errorOf(joined);
    expect(error).toMatchObject({ code: "ERR_COMM_REMOTE", rank: 0, size, ranks: [1] });
    expect(error.message).toMatch(
      /^connect: rank 1 was lost \(the connection .*\) before the job had formed\nhint: look at the output of rank 1, and start the job again$/,
    );
  });

  test("names the rank that has left", async () => {
    const { joined, other } = await joining();
    await other.member.leave();
    const error = await errorOf(joined);
    expect(error).toMatchObject({ code: "ERR_COMM_REMOTE", ranks: [1] });
    expect(error.message).toContain("connect: rank 1 has left before the job had formed");
  });

  test("names itself where its signal gives it up", async () => {
    const giveUp = new AbortController();
    const { joined } = await joining(giveUp.signal);
    const error = errorOf(joined);
    giveUp.abort(new Error("enough"));
    expect(await error).toMatchObject({
      ...{ code: "ERR_COMM_ABORTED", collective: "connect", rank: 0, cause: { message: "enough" } },
      message: "connect: given up by its signal",
    });
  });
});

test("a job is left by a rank that cannot be opened", async () => {
  const environment = read({ ...alone, PMIX_NAMESPACE: `left-${process.pid}` });
  let joined: Membership | undefined;
  const failing = joinLaunched(
    environment,
    request,
    opening((membership) => {
      joined = membership;
      return Promise.reject(new Error("no device"));
    }),
  );
  await expect(failing).rejects.toThrow("no device");
  expect(await errorOf((joined as Membership).rejoin())).toMatchObject({ code: "ERR_COMM_CLOSED" });
});
