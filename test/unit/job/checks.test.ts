/** Addresses of this machine alone: without a secret a store listens, and ranks speak, nowhere else. */
import { describe, expect, test } from "vitest";
import { isLoopback, requireSecret } from "../../../src/job/checks.ts";

describe("an address", () => {
  test.each(["127.0.0.1", "127.255.255.254", "::1", "::ffff:127.0.0.1", "::FFFF:127.0.0.1"])(
    "%s is only this machine's, and needs no secret",
    (ip) => {
      expect(isLoopback(ip)).toBe(true);
      for (const secret of [undefined, ""]) requireSecret(ip, ip, secret);
    },
  );

  test.each([
    ...["0.0.0.0", "10.0.0.127", "128.0.0.1", "12.7.0.1", "::", "::2", "fe80::1"],
    // That of a network which carries IPv4 in IPv6.
    ...["64:ff9b::127.0.0.1", "::ffff:10.0.0.1", "127.0.0.1.example.org", "127.0.0"],
  ])("%s is reachable from other machines, and needs a secret", (ip) => {
    expect(isLoopback(ip)).toBe(false);
    for (const secret of [undefined, "", "fifteen letters"]) {
      expect(() => requireSecret(ip, ip, secret)).toThrow(/secret/);
    }
    requireSecret(ip, ip, "sixteen letters.");
  });
});
