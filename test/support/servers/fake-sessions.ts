/** Sessions without connections, on a manual clock: for behavior of sessions alone. */

import assert from "node:assert/strict";
import type { Clock } from "../../../src/async/clock.ts";
import { ProcessNames } from "../../../src/exec/backend/process-names.ts";
import type { EventLogLimits } from "../../../src/exec/log/event-log.ts";
import type { Extension } from "../../../src/protocol/methods.ts";
import { LOCAL_PRINCIPAL } from "../../../src/server/auth/principal.ts";
import { OpenQuestions } from "../../../src/server/network/open-questions.ts";
import { PrincipalQuotas } from "../../../src/server/principal-quotas.ts";
import { DEFAULT_SERVER_CONFIG, type ServerConfig } from "../../../src/server/server-config.ts";
import { BackgroundProcesses } from "../../../src/server/session/background-processes.ts";
import { ProcessHandles } from "../../../src/server/session/process-handles.ts";
import type { Session } from "../../../src/server/session/session.ts";
import type { SessionClient } from "../../../src/server/session/session-process.ts";
import { SessionRegistry } from "../../../src/server/session/session-registry.ts";
import type { SharedProcess } from "../../../src/server/session/shared-process.ts";
import { ViewerScheduler } from "../../../src/server/session/viewer-scheduler.ts";
import { FakeHost, type FakeProcess } from "./fake-host.ts";
import { FakePeer } from "./fake-peer.ts";

export interface FakeClient extends SessionClient {
  readonly peer: FakePeer;
}

export function fakeClient(...extensions: Extension[]): FakeClient {
  return { peer: new FakePeer(), extensions: new Set(extensions), clientName: "test" };
}

/** Requires that no timer of a session keeps the server process alive. */
function strictClock(clock: Clock): Clock {
  return {
    now: () => clock.now(),
    monotonic: () => clock.monotonic(),
    after: (ms, fn, options) => {
      assert.equal(options?.keepAlive, false, "a timer of a session keeps the server process alive");
      return clock.after(ms, fn);
    },
  };
}

export function fakeSessions(
  config: Partial<ServerConfig> = {},
  limits: Partial<EventLogLimits> = { retainedBytes: 100 },
) {
  const host = new FakeHost(limits);
  const clock = strictClock(host.clock);
  const handles = new ProcessHandles<SharedProcess>();
  const background = new BackgroundProcesses(clock);
  const serverConfig = { ...DEFAULT_SERVER_CONFIG, retainedOutputBytes: limits.retainedBytes ?? 100, ...config };
  const registry = new SessionRegistry(
    {
      ...{ backend: host.backend, clock, handles, background, isAudited: false, generation: "8f2c11d0-1" },
      viewerScheduler: new ViewerScheduler(clock),
      names: new ProcessNames(),
      questions: new OpenQuestions(() => clock.now()),
      config: serverConfig,
      quotas: new PrincipalQuotas(serverConfig),
    },
    host.newId,
  );
  const open = (client: SessionClient): Session => registry.open(LOCAL_PRINCIPAL, client);
  /** Starts a process and its delivery. */
  const start = async (session: Session, processId = "p", more: object = {}): Promise<FakeProcess> => {
    const params = { processId, argv: ["x"], cwd: "/", env: {}, tty: false, ...more };
    (await session.start(params)).begin();
    return host.process(processId);
  };
  /** Returns the process of a session that other sessions can attach to. */
  const shared = async (session: Session, processId = "p"): Promise<SharedProcess> =>
    (await session.getProcess(processId)).shared;
  return { host, registry, handles, background, open, start, shared };
}
