/** What a backend answers about calls from its plans alone: which plan a call takes, its explanation, why it is refused. */
import {
  type CommInfo,
  type Explanation,
  type Question,
  questionPlace,
  type SpecifiedCollective,
  specifications,
  UnsupportedError,
} from "../../api/index.ts";
import { explainPlan } from "./explain.ts";
import { explainReduces } from "./explain-reduces.ts";
import type { Link } from "./link.ts";
import { isBuilt, type Plan, type Planner, type PlanQuestion } from "./plan.ts";

/** The plan of a call; a root counts only where the collective has one. */
export function planOf(planner: Planner, question: PlanQuestion): Plan {
  const { rooted } = specifications[question.collective];
  return planner.of(rooted ? question : { ...question, root: -1 });
}

/** Explains a call on a communicator: predicted, nothing runs. */
export function explainCall(
  planner: Planner,
  link: Link,
  question: Question,
  comm: CommInfo,
): Explanation {
  const { collective } = question;
  if (!isBuilt(collective)) {
    throw new UnsupportedError({
      headline: `explain: ${collective} has no plan of its own`,
      hint: "messages go to their peers as they are; of groups and recordings ask about each collective call",
    });
  }
  const asked = askedOf(collective, question, comm);
  if (!planner.reducesEachRoot(asked)) return explainPlan(planOf(planner, asked), question, link);
  const counts = question.counts?.[0] ?? comm.ranks.map(() => asked.count);
  const ofPart = (part: Question): Plan => planOf(planner, askedOf("reduce", part, comm));
  return explainReduces(question, counts, ofPart, link);
}

/** Why a call in symmetric memory is refused; `undefined` when it is not. */
export function symmetricRefusal(
  planner: Planner,
  question: Question,
  comm: CommInfo,
): string | undefined {
  const { collective } = question;
  if (!isBuilt(collective) || questionPlace(question) === undefined) return undefined;
  return planOf(planner, askedOf(collective, question, comm)).refusal;
}

/** True when the ranks of a communicator keep the order of the devices they run on. */
export function isOrdered({ ranks }: CommInfo): boolean {
  return ranks.every((rank, i) => i === 0 || rank > (ranks[i - 1] as number));
}

function askedOf(
  collective: SpecifiedCollective,
  question: Question,
  comm: CommInfo,
): PlanQuestion {
  const { dtype, count = 0, root = 0 } = question;
  const op = specifications[collective].reduces ? (question.op ?? "sum") : undefined;
  const place = questionPlace(question);
  const ranks = comm.ranks.length;
  return { collective, ranks, root, dtype, op, count, ordered: isOrdered(comm), place };
}
