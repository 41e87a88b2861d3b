-- Who is there, or was. Returns the time in milliseconds and for each member: id, when it was last seen, its status and
-- since when, its last JSON, the type of its registration's key, its value.
-- KEYS: seen, expires, status, last. ARGV: how registrations' keys begin, how many to return.
local time = redis.call('TIME')
local function int(n) return string.format('%.0f', n) end
local all = {int(time[1] * 1000 + math.floor(time[2] / 1000))}
local seen = redis.call('ZREVRANGE', KEYS[1], 0, ARGV[2] - 1, 'WITHSCORES')
for i = 1, #seen, 2 do
  local id, kind, value = seen[i], 'none', ''
  local registration = redis.pcall('GET', ARGV[1] .. id)
  if type(registration) == 'string' then
    kind, value = 'string', registration
  elseif registration then
    if not string.find(registration.err, 'WRONGTYPE', 1, true) then return registration end
    kind = 'other'
  end
  all[#all + 1] = id
  all[#all + 1] = int(tonumber(seen[i + 1]))
  all[#all + 1] = redis.call('HGET', KEYS[3], id) or ''
  all[#all + 1] = redis.call('HGET', KEYS[4], id) or ''
  all[#all + 1] = kind
  all[#all + 1] = value
end
return all
