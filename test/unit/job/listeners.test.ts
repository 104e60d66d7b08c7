/** Listeners of a process that throw: a warning, and the job goes on. */
import { afterEach, expect, test, vi } from "vitest";
import { fragile, place, text } from "./stores.ts";

afterEach(() => vi.restoreAllMocks());

test("a listener that throws harms neither the connection nor other listeners", async () => {
  const warnings = vi.spyOn(process, "emitWarning").mockImplementation(() => undefined);
  const at = await place(3);
  const [zero, one, two] = await fragile(at, 3);
  const lost: unknown[] = [];
  const news: string[] = [];
  const next: unknown[] = [];
  const broken = (): never => {
    throw new Error("of a listener");
  };
  const member = one!.member;
  member.onLost(broken);
  member.onLost(({ rank }) => void lost.push(rank));
  member.onNews(broken);
  member.onNews((each) => void news.push(each));
  member.onNextGeneration(broken);
  member.onNextGeneration((ranks) => void next.push(ranks));
  two!.member.announce([1], "fine");
  await expect.poll(() => news).toEqual(["fine"]);
  zero!.cut();
  await expect.poll(() => lost).toEqual([0]);
  await member.set("k", new TextEncoder().encode("v"));
  expect(text(await two!.member.get("k"))).toBe("v");
  await two!.member.rejoin({ without: [0, 1] });
  await expect.poll(() => next).toEqual([[2]]);
  expect(warnings.mock.calls.map(([words]) => words)).toEqual(
    Array(3).fill("a listener of the job has thrown: Error: of a listener"),
  );
  // The store's end is a loss too.
  await at.server.close();
  await member.leave();
});
