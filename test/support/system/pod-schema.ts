/**
 * The parts of a Kubernetes pod (core/v1) that the example uses, written after the public API reference. Members that are not
 * named here are rejected, as `kubectl apply --validate=strict` rejects unknown members.
 */

const strict = (properties: object, required: string[] = []) => ({
  type: "object",
  properties,
  required,
  additionalProperties: false,
});
const list = (items: object) => ({ type: "array", items, minItems: 1 });
const text = { type: "string", minLength: 1 };
const flag = { type: "boolean" };
const count = { type: "integer", minimum: 1 };
/** A user or group. */
const id = { type: "integer", minimum: 0 };
/** DNS-1123. */
const label = { type: "string", pattern: "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", maxLength: 63 };
const quantity = { type: ["string", "integer"], pattern: "^[0-9]+(\\.[0-9]+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$" };
const port = { type: "integer", minimum: 1, maximum: 65535 };
const absolutePath = { type: "string", pattern: "^/" };

const probe = strict(
  {
    httpGet: strict({ path: absolutePath, port, host: text, scheme: { enum: ["HTTP", "HTTPS"] } }, ["port"]),
    initialDelaySeconds: { type: "integer", minimum: 0 },
    periodSeconds: count,
    timeoutSeconds: count,
    successThreshold: count,
    failureThreshold: count,
  },
  ["httpGet"],
);

const seccompProfile = strict({ type: { enum: ["RuntimeDefault", "Unconfined", "Localhost"] } }, ["type"]);

const container = (more: object) =>
  strict(
    {
      name: label,
      image: { type: "string", pattern: "^[a-z0-9.:/_-]+$" },
      command: list(text),
      args: list(text),
      workingDir: absolutePath,
      env: list({
        oneOf: [
          strict({ name: text, value: { type: "string" } }, ["name", "value"]),
          strict(
            {
              name: text,
              valueFrom: strict({ secretKeyRef: strict({ name: label, key: text, optional: flag }, ["name", "key"]) }, [
                "secretKeyRef",
              ]),
            },
            ["name", "valueFrom"],
          ),
        ],
      }),
      // A port name has at most fifteen characters.
      ports: list(strict({ name: { ...label, maxLength: 15 }, containerPort: port }, ["containerPort"])),
      readinessProbe: probe,
      livenessProbe: probe,
      startupProbe: probe,
      securityContext: strict({
        allowPrivilegeEscalation: flag,
        privileged: flag,
        readOnlyRootFilesystem: flag,
        runAsNonRoot: flag,
        runAsUser: id,
        procMount: { enum: ["Default", "Unmasked"] },
        capabilities: strict({ drop: list(text), add: list(text) }),
        seccompProfile,
      }),
      resources: strict({
        limits: strict({ memory: quantity, cpu: quantity }),
        requests: strict({ memory: quantity, cpu: quantity }),
      }),
      volumeMounts: list(
        strict({ name: label, mountPath: absolutePath, readOnly: flag, subPath: text }, ["name", "mountPath"]),
      ),
      ...more,
    },
    ["name", "image"],
  );

export const POD_SCHEMA = strict(
  {
    apiVersion: { const: "v1" },
    kind: { const: "Pod" },
    metadata: strict({ name: label, labels: { type: "object" } }, ["name"]),
    spec: strict(
      {
        automountServiceAccountToken: flag,
        securityContext: strict({
          runAsNonRoot: flag,
          runAsUser: id,
          runAsGroup: id,
          fsGroup: id,
          seccompProfile,
        }),
        // An init container may have probes only with this policy.
        initContainers: list(container({ restartPolicy: { const: "Always" } })),
        containers: list(container({})),
        volumes: list({
          oneOf: [
            strict(
              {
                name: label,
                secret: strict({ secretName: label, defaultMode: { type: "integer", minimum: 0, maximum: 0o777 } }, [
                  "secretName",
                ]),
              },
              ["name", "secret"],
            ),
            strict({ name: label, emptyDir: strict({ sizeLimit: quantity }) }, ["name", "emptyDir"]),
          ],
        }),
      },
      ["containers"],
    ),
  },
  ["apiVersion", "kind", "metadata", "spec"],
);
