/** The typed error of a function that has to throw one. */
import { CommError } from "twinccl";

/** Its error; throws where it returns, and any other error. */
export function errorOf(body: () => unknown): CommError {
  try {
    body();
  } catch (error) {
    if (error instanceof CommError) return error;
    throw error;
  }
  throw new Error("accepted");
}
