-- wrk -s load.lua URL -- FILE NUMBER DELAY_MS
-- NUMBER has twelve hexadecimal digits and differs in each run.
-- FILE has the requests, each terminated by a NUL; \1 in a request is replaced by a new key.
local requests, prefix, count = {}, "", 0

function init(arguments)
   local file = assert(io.open(arguments[1], "rb"))
   for text in file:read("*a"):gmatch("([^%z]+)%z") do
      local before, after = text:match("^(.-)\1(.*)$")
      requests[#requests + 1] = before and { before, after } or { text }
   end
   file:close()
   local number = arguments[2]
   math.randomseed(tonumber(number, 16))
   prefix = number:sub(1, 4) .. "-" .. number:sub(5, 8) .. "-" .. number:sub(9, 12)
   local mean = tonumber(arguments[3])
   if mean > 0 then
      delay = function() return math.random(0, 2 * mean) end
   end
end

-- Formatted and distributed like a UUID, but guaranteed not to repeat.
local function key()
   return string.format("%08x-%s-%012x", math.random(0, 0x7fffffff), prefix, count)
end

function request()
   count = count + 1
   local parts = requests[count % #requests + 1]
   if parts[2] then
      return parts[1] .. key() .. parts[2]
   end
   return parts[1]
end

function done(summary, latency)
   local errors = summary.errors
   io.write(string.format(
      '\n{"requests": %d, "refused": %d, "broken": %d, "seconds": %.6f, "p50": %.6f, "p99": %.6f}\n',
      summary.requests, errors.status, errors.connect + errors.read + errors.write + errors.timeout,
      summary.duration / 1e6, latency:percentile(50) / 1e6, latency:percentile(99) / 1e6))
end
