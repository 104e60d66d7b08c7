/** Counts of failed calls: each counts once; unobserved ones are held against their rank, until a new run. */
import { expect, test } from "vitest";
import { Failures } from "../../../src/api/ledger/failures.ts";
import { type CallContext, completeOp, Operation } from "../../../src/api/op.ts";

const comm = { id: 0, name: "world", ranks: [0, 1], local: [0, 1] };

function books() {
  let unseen = 0;
  const failures = new Failures(comm, () => {
    unseen += 1;
  });
  const observer = { awaited: () => undefined, resumed: () => undefined };
  const op = (rank: number): Operation => {
    const maker = {
      rank,
      worldRank: rank,
      callingRank: rank,
      observer,
      onCallbackError: () => undefined,
    };
    return new Operation(maker as CallContext);
  };
  return { failures, op, unseen: () => unseen };
}

test("a settled operation cannot fail", () => {
  const { failures, op, unseen } = books();
  const done = op(0);
  completeOp(done, undefined);
  failures.fail(done, new Error("too late"));
  expect([failures.count(0), unseen(), failures.poison(0)]).toEqual([0, 0, undefined]);
  const failed = op(0);
  failures.fail(failed, new Error("first"));
  failures.fail(failed, new Error("second"));
  expect([failures.count(0), unseen()]).toEqual([1, 1]);
});

test("a call with two failed halves counts as one failure", () => {
  const { failures, op } = books();
  const whole = op(1);
  for (const half of [op(1), op(1)]) failures.fail(half.halfOf(whole), new Error("gone"));
  expect([failures.count(0), failures.count(1)]).toEqual([0, 1]);
  failures.fail(op(1), new Error("another"));
  expect(failures.count(1)).toBe(2);
});

test("an unobserved failure counts for its rank alone, until it is observed", async () => {
  const { failures, op } = books();
  const cause = new Error("gone");
  const failed = op(0);
  failures.fail(failed, cause);
  expect(failures.poison(1)).toBeUndefined();
  expect(failures.poison(0)).toMatchObject({ code: "ERR_COMM_ABORTED", rank: 0, cause });
  await expect(failed).rejects.toBe(cause);
  expect(failures.poison(0)).toBeUndefined();
});

test("a failure is reported once per run", async () => {
  const { failures, op } = books();
  for (const run of [0, 1]) {
    failures.fail(op(0), new Error(`in run ${run}`));
    expect(failures.unreported(0)).toMatchObject({ code: "ERR_COMM_ABORTED" });
    failures.markReported(0);
    expect(failures.unreported(0)).toBeUndefined();
    // A later call is refused for it: an observer of that one has seen this one as well.
    failures.clear();
    expect(failures.poison(0)).toBeUndefined();
  }
  const later = op(0);
  failures.fail(op(0), new Error("once more"));
  failures.refuse(later, new Error("refused"));
  expect(failures.unreported(0)).toBeDefined();
  await expect(later).rejects.toThrow("refused");
  expect(failures.unreported(0)).toBeUndefined();
  expect(failures.count(0)).toBe(4);
});
