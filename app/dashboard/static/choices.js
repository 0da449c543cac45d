/** Choices of calls, read from the OpenAPI document: a new algorithm or layout appears by itself. */

/** @typedef {{algorithms: string[], algorithm: string, modes: string[], layouts: string[]}} Choices */

/** @type {Promise<Choices> | null} */
let pending = null;

/** @param {import("./api.js").Api} api @returns {Promise<Choices>} */
export function readChoices(api) {
  pending ??= api.get("openapi.json").then((document) => {
    const run = document.components.schemas.NewRun.properties;
    const parameters = document.paths["/v1/import"].post.parameters;
    const layout = parameters.find((one) => one.name === "format").schema;
    return {
      algorithms: values(run.algorithm, document),
      algorithm: run.algorithm.default,
      modes: values(run.activate, document),
      layouts: values(layout, document),
    };
  });
  pending.catch(() => {
    pending = null; // requested again next time
  });
  return pending;
}

function values(schema, document) {
  const found = schema.$ref ? document.components.schemas[schema.$ref.split("/").pop()] : schema;
  return (
    found.enum ??
    (found.const === undefined ? (found.anyOf ?? []).flatMap((one) => values(one, document)) : [found.const])
  );
}
