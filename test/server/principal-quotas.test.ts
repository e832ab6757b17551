import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { PrincipalQuotas, type QuotaName } from "../../src/server/principal-quotas.ts";
import { DEFAULT_SERVER_CONFIG, type ServerConfig } from "../../src/server/server-config.ts";

const SEVERAL = { ...DEFAULT_SERVER_CONFIG, hasSeveralPrincipals: true };

/** The quotas with the resources that each principal holds. */
class Model {
  readonly total: number;
  readonly held = new Map<string, (() => void)[]>();
  readonly #quotas: PrincipalQuotas;
  readonly #name: QuotaName;

  constructor(total: number, config: Partial<ServerConfig> = {}, name: QuotaName = "processes") {
    this.total = total;
    this.#name = name;
    this.#quotas = new PrincipalQuotas({ ...SEVERAL, maxServerProcesses: total, ...config });
  }

  get free(): number {
    return this.total - [...this.held.values()].reduce((sum, { length }) => sum + length, 0);
  }

  count(owner: string): number {
    return this.held.get(owner)?.length ?? 0;
  }

  /** Acquires one resource, as long as the server has one. Reports whether the principal got it. */
  acquire(owner: string): boolean {
    if (this.free === 0) return false;
    try {
      const release = this.#quotas.acquire(owner, this.#name);
      this.held.set(owner, [...(this.held.get(owner) ?? []), release]);
      return true;
    } catch {
      return false;
    }
  }

  release(owner: string): void {
    this.held.get(owner)?.pop()?.();
  }

  fill(owner: string): number {
    while (this.acquire(owner));
    return this.count(owner);
  }

  get principalCount(): number {
    return this.#quotas.principalCount;
  }
}

describe("quotas of principals that share a server limit", () => {
  test("leave a free resource for a new principal after up to eight principals that take all they can", () => {
    for (const total of [256, 1024, 4096, 16_384]) {
      const model = new Model(total);
      const counts = Array.from({ length: 8 }, (_, at) => model.fill(`greedy ${at}`));
      assert.deepEqual(
        counts.map((count) => count / total),
        [1 / 4, 1 / 4, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128],
      );
      assert.ok(model.acquire("new"));
    }
  });

  test("converge to an equal part for principals that compete at the same time", () => {
    for (const principals of [4, 5, 9, 20]) {
      const total = 1000;
      const model = new Model(total);
      const owners = Array.from({ length: principals }, (_, at) => `p${at}`);
      for (let hasTaken = true; hasTaken; ) hasTaken = owners.map((owner) => model.acquire(owner)).includes(true);
      for (const owner of owners) {
        const share = total / (principals + 1);
        assert.ok(Math.abs(model.count(owner) - share) <= 1, `${model.count(owner)} of about ${share}`);
      }
      assert.ok(model.free >= model.count("p0") - 1);
    }
  });

  test("hold for random acquisitions and releases", () => {
    const seed = Math.floor(Math.random() * 2 ** 31);
    let state = seed;
    const random = (below: number) => {
      state = (Math.imul(state, 1_103_515_245) + 12_345) & 0x7fffffff;
      return Math.floor((state / 2 ** 31) * below);
    };
    for (let run = 0; run < 50; run++) {
      const model = new Model(1 + random(200));
      const owners = Array.from({ length: 1 + random(8) }, (_, at) => `p${at}`);
      for (let step = 0; step < 400; step++) {
        const owner = owners[random(owners.length)] ?? "";
        const { free } = model;
        const held = model.count(owner);
        const context = `seed ${seed}: ${held} held, ${free} of ${model.total} free`;
        if (random(3) === 0) model.release(owner);
        else if (model.acquire(owner)) {
          assert.ok(free > 0, context);
          assert.ok(held === 0 || held + 1 <= free - 1, context);
          assert.ok(held === 0 || held + 1 <= model.total / 4, context);
        } else if (held === 0) assert.equal(free, 0, context);
      }
      for (const owner of owners) while (model.count(owner) > 0) model.release(owner);
      assert.equal(model.principalCount, 0, `seed ${seed}`);
    }
  });

  test("never exceed an explicit quota, and let one principal use at most half of the server with a larger one", () => {
    assert.equal(new Model(1000, { quotas: { processes: 3 } }).fill("alice"), 3);
    const model = new Model(1000, { quotas: { processes: 1000 } });
    assert.equal(model.fill("alice"), 500);
    assert.equal(model.fill("bob"), 250);
  });

  test("let the only principal of a server use the whole limit", () => {
    assert.equal(new Model(1000, { hasSeveralPrincipals: false }).fill("alice"), 1000);
  });

  test("let the only principal of a server open any number of sessions, and several up to the limit of connections", () => {
    const only = new PrincipalQuotas({ ...DEFAULT_SERVER_CONFIG, maxConnections: 4 });
    for (let at = 0; at < 100; at++) only.acquire("alice", "sessions");
    const several = new PrincipalQuotas({ ...SEVERAL, maxConnections: 8 });
    for (let at = 0; at < 2; at++) several.acquire("alice", "sessions");
    assert.throws(() => several.acquire("alice", "sessions"), {
      message:
        "too many sessions: this principal has 2 of 2 at once; end one first, or raise --max-sessions-per-principal",
    });
  });

  test("name the use of others, and no flag that would not help", () => {
    const quotas = new PrincipalQuotas({ ...SEVERAL, maxServerProcesses: 16 });
    for (const owner of ["a", "b", "c"]) for (let at = 0; at < 4; at++) quotas.acquire(owner, "processes");
    for (let at = 0; at < 2; at++) quotas.acquire("d", "processes");
    assert.throws(() => quotas.acquire("d", "processes"), {
      message: "too many processes: this principal has 2 of 2 while others have 12 of 16; end one first",
    });
    assert.throws(() => quotas.acquire("a", "processes"), {
      message: /has 4 of 3 while others have 10 of 16; end one first$/,
    });
  });
});
